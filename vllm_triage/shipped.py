"""Shipped: the records that a shipper hands to a filter, whose they are, and how an incident is put into one."""

import json
from collections.abc import Mapping, Sequence

from vllm_triage.json_records import lookup
from vllm_triage.model import Update
from vllm_triage.paths import printable
from vllm_triage.reports import ndjson

# What names the process that printed a record, as the usual shippers write it.
SOURCE_KEYS: tuple[tuple[str, ...], ...] = (
    ("kubernetes.namespace_name", "kubernetes.pod_name", "kubernetes.container_name"),
    ("kubernetes.pod_namespace", "kubernetes.pod_name", "kubernetes.container_name"),
    ("kubernetes.namespace", "kubernetes.pod.name", "kubernetes.container.name"),
    ("resource.k8s.namespace.name", "resource.k8s.pod.name", "resource.k8s.container.name"),
    ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name"),
    ("namespace", "pod", "container"),
    ("pod_name", "container_name"),
    ("container_name",),
    ("CONTAINER_NAME",),
    ("container_id",),
    ("_HOSTNAME", "_SYSTEMD_UNIT"),
    ("_SYSTEMD_UNIT",),
    ("hostname", "programname"),
    ("host", "programname"),
    ("hostname",),
    ("host",),
)


def source_name(record: Mapping[str, object], source_keys: Sequence[Sequence[str]]) -> str:
    """What the first of these fields that are there say, in one; empty when none is."""
    for keys in source_keys:
        values = [
            str(value)
            for key in keys
            if isinstance(value := lookup(record, key), str | int) and value != ""
        ]
        if values:
            return printable("/".join(values)[:256])
    return ""


def record_of(line: bytes) -> Mapping[str, object] | None:
    """The JSON object that a line is; None where it is none."""
    if b"{" not in line[:64]:
        return None
    # json would read bytes as UTF-16 where they look like it.
    text = line.decode("utf-8", "replace").lstrip("\ufeff \t\r")
    if not text.startswith("{"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def with_field(line: bytes, key: str, update: Update) -> bytes:
    """The record as it is written, with one field more."""
    end = line.rindex(b"}")
    body = line[:end]
    comma = b"" if body.rstrip().endswith(b"{") else b","
    return b"%b%b%b:%b%b" % (
        body,
        comma,
        json.dumps(key).encode(),
        ndjson.line(update).encode(),
        line[end:],
    )
