"""Manifests: `docker inspect`, and pods and what makes them, as YAML or JSON."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm_triage.artefacts.observations import Observation, Reading, Value, line
from vllm_triage.artefacts.owners import owners
from vllm_triage.artefacts.variables import REFERENCE, RELEVANT, Variable, node
from vllm_triage.echo_reader import EchoReader
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_MAX_DEPTH = 40
_MAX_CONTAINERS = 500
_YAML_START = expression(r"(?:apiVersion|kind|metadata|items|spec|status):")
_YAML_KIND = expression(r"(?m)^(?:  |- )?kind: *['\"]?[A-Z]\w+")
_ENTRY = expression(
    r"(?P<indent> *+)(?P<dash>(?:- ++)*+)(?P<key>[\w./-]{1,120}+) *+:(?: ++(?P<value>.*))?"
)
_ITEM = expression(r"(?P<indent> *+)- ++(?P<value>.*)")
# "NAME=value" of docker, "name": "NAME" of kubectl.
_QUOTED = expression(r'(?:^\s*+"|"name": ?")([A-Z]\w{1,100})["=]')
_FLOW = expression(
    r"\{ *+name: *+(?P<name>[^,}]{1,200}+), *+value: *+(?P<value>[^}]{0,400}+)\} *+"
)
# vllm-0, vllm-0-1, vllm-7d4b9c6f5d-x2x5k.
_ORDINALS = expression(r"(?:-\d{1,4}){1,3}$|-[a-z0-9]{8,10}-[a-z0-9]{5}$")
_NO_VALUES = ("|", "|-", ">", ">-", "|+", ">+")


class Container(NamedTuple):
    """One container, and what it is started with."""

    name: str
    pod: str
    variables: tuple[Variable, ...]
    words: tuple[str, ...]
    """Its command and arguments."""
    number: int
    """The line that names it."""


def is_docker(head: str) -> bool:
    """Whether a text begins as `docker inspect` prints a container."""
    return head.startswith("[") and '"HostConfig"' in head and '"State"' in head


def is_pods(head: str) -> bool:
    """Whether a text begins as a manifest does, or as kubectl prints one."""
    if head.startswith("{"):
        return '"apiVersion"' in head and '"kind"' in head and '"containers"' in head
    rows = [
        one for one in head.split("\n")[:50] if one.strip() and not one.startswith(("#", "---"))
    ]
    return bool(
        rows
        and _YAML_START.match(rows[0])
        and "containers:" in head
        and _YAML_KIND.search(head)
        and "apiVersion:" in head
    )


def read(lines: Sequence[Line]) -> Reading:
    """Read the containers of a manifest."""
    texts = [one.raw for one in lines]
    data: object = None
    source = lines[0].source if lines else ""
    if texts and texts[0].lstrip("\ufeff \t").startswith(("{", "[")):
        try:
            data = json.loads("\n".join(texts))
        except (ValueError, RecursionError):
            return Reading((), "it is no whole JSON")
        containers = list(_in_json(data, _Places(texts)))
    else:
        containers = list(_in_yaml(texts))
    found = (*_observations(source, containers[:_MAX_CONTAINERS]), *owners(source, texts, data))
    return Reading(found)


def _observations(source: str, containers: Sequence[Container]) -> Iterator[Observation]:
    found = []
    for one in containers:
        several = sum(other.pod == one.pod for other in containers) > 1
        name = f"{one.pod}/{one.name}" if several and one.pod and one.name else one.pod or one.name
        made = node(source, one.variables, name=name)
        # A sidecar has none of these.
        if made is not None:
            found.append((_ORDINALS.sub("", one.pod), made))
        started = started_with(source, one)
        if started is not None:
            yield started
    for group, made in found:
        yield made._replace(
            values={**made.values, "sort": "manifest", "group": group if len(found) > 1 else ""}
        )


def started_with(source: str, one: Container) -> Observation | None:
    """What a container's command tells of the server that it runs."""
    if not one.words:
        return None
    echo = EchoReader().feed("args: " + json.dumps(one.words))
    if echo is None:
        return None
    values: dict[str, Value] = {
        f"--{name}": " ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in echo.flags().items()
        if name not in ("api_key", "hf_token")
    }
    if echo.model:
        values["model"] = echo.model
    shown = line(source, one.number, f"{one.name}: {' '.join(one.words)}"[:400])
    return Observation("run", values, {"model": shown}) if values else None


def _in_json(data: object, places: "_Places", depth: int = 0) -> Iterator[Container]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(data, list):
        for one in data:
            yield from _in_json(one, places, depth + 1)
        return
    if not isinstance(data, dict):
        return
    config = data.get("Config")
    if isinstance(config, dict) and "HostConfig" in data:
        yield _docker(data, config, places)
        return
    items = data.get("items")
    if isinstance(items, list):
        yield from _in_json(items, places, depth + 1)
        return
    yield from _pods(data, _text(_dict(data.get("metadata")).get("name")), places, depth)


def _pods(data: object, pod: str, places: "_Places", depth: int) -> Iterator[Container]:
    """The containers of an object, however deep its template lies."""
    if not isinstance(data, dict) or depth > _MAX_DEPTH:
        return
    containers = data.get("containers")
    if isinstance(containers, list):
        for one in map(_dict, containers):
            name = _text(one.get("name"))
            variables = []
            for item in map(_dict, _list(one.get("env"))):
                key = _text(item.get("name"))
                value = item.get("value", "" if "valueFrom" not in item else REFERENCE)
                shown = f"{key}={_text(value)}"
                variables.append(Variable(key, _text(value), places.next(key), shown))
            words = [_text(word) for key in ("command", "args") for word in _list(one.get(key))]
            yield Container(name, pod, tuple(variables), tuple(words), 1)
        return
    for key, value in data.items():
        if key != "metadata":
            yield from _pods(value, pod, places, depth + 1)


def _docker(
    data: Mapping[str, object], config: Mapping[str, object], places: "_Places"
) -> Container:
    variables = []
    for text in map(_text, _list(config.get("Env"))):
        name, equals, value = text.partition("=")
        if equals:
            variables.append(Variable(name, value, places.next(name), text))
    name = _text(data.get("Name")).lstrip("/")
    words = [_text(data.get("Path")), *map(_text, _list(data.get("Args")))]
    return Container(name, name, tuple(variables), tuple(one for one in words if one), 1)


def _in_yaml(texts: Sequence[str]) -> Iterator[Container]:
    """Containers in block style, as kubectl prints them and most people write them."""
    pod, at = "", 0
    document = ""
    while at < len(texts):
        found = _ENTRY.fullmatch(texts[at][:2000].rstrip())
        if texts[at].startswith("---"):
            document = pod = ""
        elif found is not None and found["key"] == "metadata" and not found["value"]:
            inside = _block(texts, at + 1, len(found["indent"]) + len(found["dash"]))
            depth = _least(texts[at + 1 : inside])
            for text in texts[at + 1 : inside]:
                own = _ENTRY.fullmatch(text[:2000].rstrip())
                if own and own["key"] == "name" and len(own["indent"]) == depth and own["value"]:
                    # A template's name is that of what makes it.
                    is_item = len(found["indent"]) + len(found["dash"]) <= 2
                    pod = _scalar(own["value"]) if is_item or not pod else pod
                    document = document or pod
            at = inside
            continue
        elif found is not None and found["key"] == "containers" and not found["value"]:
            indent = len(found["indent"]) + len(found["dash"])
            end = _block(texts, at + 1, indent, is_list=True)
            yield from _containers(texts, at + 1, end, pod or document)
            at = end
            continue
        at += 1


def _block(texts: Sequence[str], at: int, indent: int, *, is_list: bool = False) -> int:
    """Where what stands under a key ends; a list's dashes may stand below the key itself."""
    while at < len(texts):
        text = texts[at]
        own = len(text) - len(text.lstrip(" "))
        is_inside = own > indent or (is_list and own == indent and text.lstrip().startswith("- "))
        if text.strip() and not text.lstrip().startswith("#") and not is_inside:
            break
        at += 1
    return at


def _least(texts: Sequence[str]) -> int:
    return min((len(one) - len(one.lstrip(" ")) for one in texts if one.strip()), default=0)


def _containers(texts: Sequence[str], at: int, end: int, pod: str) -> Iterator[Container]:
    depth = _least(texts[at:end])
    starts = [index for index in range(at, end) if texts[index].startswith(" " * depth + "- ")] + [
        end
    ]
    for first, last in pairwise(starts):
        # The dash stands where the first key's indentation would.
        part = [texts[first].replace("- ", "  ", 1), *texts[first + 1 : last]]
        keys = _least(part)
        name, variables, words = "", [], list[str]()
        for index, text in enumerate(part):
            found = _ENTRY.fullmatch(text[:2000].rstrip())
            if found is None or len(found["indent"]) != keys or found["dash"]:
                continue
            stop = _block(part, index + 1, keys, is_list=True)
            below = part[index + 1 : stop]
            if found["key"] == "name" and found["value"]:
                name = _scalar(found["value"])
            elif found["key"] == "env":
                variables = list(_variables(below, first + index + 2))
            elif found["key"] == "command":
                words = [*_listed(found["value"] or "", below), *words]
            elif found["key"] == "args":
                words += _listed(found["value"] or "", below)
        yield Container(name, pod, tuple(variables), tuple(words), first + 1)


def _variables(texts: Sequence[str], first: int) -> Iterator[Variable]:
    name, value, at = "", "", first
    depth = _least(texts)
    for number, text in enumerate(texts, first):
        item = _ITEM.fullmatch(text[:2000].rstrip())
        is_new = item is not None and len(item["indent"]) == depth
        if is_new and item is not None:
            if name:
                yield Variable(name, value, at, f"{name}={value}")
            name, value, at = "", "", number
            flow = _FLOW.fullmatch(item["value"])
            if flow is not None:
                name, value = _scalar(flow["name"]), _scalar(flow["value"])
                continue
            text = item["value"]
        found = _ENTRY.fullmatch(text[:2000].rstrip())
        if found is None:
            continue
        if found["key"] == "valueFrom":
            value = REFERENCE
        elif found["key"] == "value":
            shown = found["value"] or ""
            value = REFERENCE if shown.strip() in _NO_VALUES else _scalar(shown)
        elif found["key"] == "name" and not name:
            name = _scalar(found["value"] or "")
    if name:
        yield Variable(name, value, at, f"{name}={value}")


def _listed(value: str, below: Sequence[str]) -> list[str]:
    """A list of words, on one line or below the key."""
    if value.startswith("["):
        try:
            return [_text(one) for one in _list(json.loads(value))]
        except ValueError:
            return []
    words: list[str] = []
    for text in below:
        item = _ITEM.fullmatch(text[:4000].rstrip())
        if item is not None:
            words.append("" if item["value"].strip() in _NO_VALUES else _scalar(item["value"]))
        elif words and not text.lstrip().startswith("#"):
            words[-1] = f"{words[-1]} {text.strip()}".strip()
    return words


def _scalar(text: str) -> str:
    """A plain or quoted scalar, without the comment behind it."""
    text = text.strip()
    end = text.find(text[0], 1) if text[:1] in ("'", '"') else -1
    return text[1:end] if end > 0 else text.partition(" #")[0].strip()


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:4000]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


class _Places:
    """The lines of the variables that matter, in the order in which they stand in the file."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._known: dict[str, deque[int]] = {}
        for number, text in enumerate(texts, 1):
            for found in _QUOTED.finditer(text):
                if RELEVANT.fullmatch(found[1]) is not None:
                    self._known.setdefault(found[1], deque()).append(number)

    def next(self, name: str) -> int:
        """The line of a variable's next place; 1 where there is none."""
        known = self._known.get(name)
        return known.popleft() if known else 1
