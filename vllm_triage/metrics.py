"""Metrics: the incidents of a stream, counted for node_exporter's textfile collector."""

import contextlib
import errno
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from vllm_triage.errors import SourceError
from vllm_triage.model import Update
from vllm_triage.reports.clean import clean
from vllm_triage.versions import __version__

MAX_SOURCES = 100
OTHER = "other"
_MAX_INCIDENTS = 10_000

_HEADS = {
    "vllm_triage_build_info": ("gauge", "The release of vllm-triage that writes this file."),
    "vllm_triage_incidents_total": (
        "counter",
        "Times that an incident was printed, as far as it was told; consequences count too.",
    ),
    "vllm_triage_last_incident_timestamp_seconds": (
        "gauge",
        "When an incident of this kind was last told, in seconds since 1970.",
    ),
}

_Labels = tuple[tuple[str, str], ...]


class MetricsFile:
    """Keeps counters of incidents in a file in Prometheus' text format, written anew at each incident.

    The file is replaced in one step, so a reader never sees half of it. It is readable by all,
    as node_exporter runs as a user of its own. A source beyond the first 100 counts as `other`.
    What cannot be written is warned of once, until writing works again.
    Raises SourceError when it cannot be written at first or is no regular file.
    https://prometheus.io/docs/instrumenting/exposition_formats/
    """

    def __init__(
        self, path: Path, warn: Callable[[str], None], now: Callable[[], float] = time.time
    ) -> None:
        # A link goes on pointing to its file.
        self._path = path.resolve() if path.is_symlink() else path
        self._warn = warn
        self._now = now
        self._is_broken = False
        self._sources: set[str] = set()
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._values: dict[str, dict[_Labels, float]] = {name: {} for name in _HEADS}
        self._values["vllm_triage_build_info"][(("version", __version__),)] = 1
        if path.suffix != ".prom":
            warn(f"{path}: node_exporter reads only files that end in .prom")
        try:
            if self._path.exists() and not self._path.is_file():
                # It would be replaced: /dev/null, for the whole machine.
                raise OSError(errno.EINVAL, "Not a regular file")  # noqa: TRY301
            self._write()
        except OSError as error:
            message = f"{path}: cannot be written: {error.strerror}; choose another file for --metrics-file"
            raise SourceError(message) from None

    def know(self, update: Update) -> None:
        """Take an incident that is not to be counted, only what comes on top of it."""
        self._counts[_key(update)] = update.count

    def __call__(self, update: Update) -> None:
        """Count one incident, or what a revision has more than the one before."""
        key = _key(update)
        more = max(0, update.count - self._counts.get(key, 0))
        self._counts[key] = max(update.count, self._counts.get(key, 0))
        self._counts.move_to_end(key)
        if len(self._counts) > _MAX_INCIDENTS:
            self._counts.popitem(last=False)
        if more and not update.withdrawn:
            self._count(update, more)
        self._save()

    def _count(self, update: Update, more: int) -> None:
        kind = ("kind", update.kind.value)
        labels = (
            kind,
            ("severity", update.severity.value),
            ("source", self._source(update.evidence[0].source)),
        )
        counts = self._values["vllm_triage_incidents_total"]
        counts[labels] = counts.get(labels, 0) + more
        times = self._values["vllm_triage_last_incident_timestamp_seconds"]
        times[(kind,)] = round(self._now(), 3)

    def _source(self, name: str) -> str:
        if name in self._sources or len(self._sources) < MAX_SOURCES:
            self._sources.add(name)
            return name
        return OTHER

    def _save(self) -> None:
        try:
            self._write()
        except OSError as error:
            if not self._is_broken:
                self._warn(
                    f"{self._path}: metrics cannot be written: {error.strerror}; the log goes on"
                )
            self._is_broken = True
            return
        if self._is_broken:
            self._warn(f"{self._path}: can be written again; nothing was lost")
            self._is_broken = False

    def _write(self) -> None:
        # Not *.prom: the collector must not take it for a second file of the same metrics.
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            with os.fdopen(file, "wb") as stream:
                # Whatever the umask is: another user reads it.
                os.fchmod(file, 0o644)
                stream.write(self.text().encode())
            temporary.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def text(self) -> str:
        """The whole file."""
        rows = []
        for name, (sort, text) in _HEADS.items():
            if self._values[name]:
                rows += [f"# HELP {name} {text}", f"# TYPE {name} {sort}"]
            for labels, value in sorted(self._values[name].items()):
                shown = ",".join(f'{label}="{_escaped(one)}"' for label, one in labels)
                rows.append(f"{name}{{{shown}}} {value}")
        return "\n".join(rows) + "\n"


def _key(update: Update) -> tuple[str, str]:
    return update.evidence[0].source, update.id


def _escaped(text: str) -> str:
    shown = clean(text).replace("\\", "\\\\").replace("\n", "\\n")
    return shown.replace('"', '\\"')
