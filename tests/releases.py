"""What each vLLM release accepts: flags, values, variables, subcommands and metrics.

Read from the published releases: flags into `patterns/flags.toml`, all else, trimmed, into `fixtures/vllm/releases.json`.
"""

import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tests.conftest import FIXTURES
from vllm_triage.tables import folder
from vllm_triage.versions import parse

Releases = frozenset[str]

_DATA: dict[str, Any] = json.loads((FIXTURES / "vllm" / "releases.json").read_text("utf-8"))
# Which release accepts which flag is knowledge of the tool itself.
_FLAGS: dict[str, Any] = tomllib.loads((folder() / "flags.toml").read_text("utf-8"))
VERSIONS: tuple[str, ...] = tuple(_DATA["versions"])
NEWEST = VERSIONS[-1]
ALL: Releases = frozenset(VERSIONS)
# The engine's flags, which these take beside their own.
_ENGINE_TOO = ("bench throughput", "bench latency")


def span(since: str | None, until: str | None) -> Releases:
    """The releases from `since` to `until`, both included."""
    first, last = parse(since), parse(until)
    return frozenset(
        version
        for version in VERSIONS
        if (number := parse(version))
        and (first is None or number >= first)
        and (last is None or number <= last)
    )


@cache
def _spans(text: str) -> Releases:
    """The releases of `0.2.7-0.6.0 0.33.0-0.33.0`."""
    out: set[str] = set()
    for piece in text.split():
        first, _, last = piece.partition("-")
        out.update(VERSIONS[VERSIONS.index(first) : VERSIONS.index(last) + 1])
    return frozenset(out)


@cache
def flags(command: str) -> Mapping[str, Releases]:
    """The long flags of `serve` or `bench ...`, each with the releases that accept it."""
    own = {flag: _pairs(pairs) for flag, pairs in _FLAGS.get(command, {}).items()}
    return {**flags("serve"), **own} if command in _ENGINE_TOO else own


def _pairs(pairs: Sequence[str]) -> Releases:
    """The releases of first, last, first, last, ...; without the last `last` up to the newest."""
    return frozenset().union(
        *(span(first, last) for first, last in itertools.zip_longest(pairs[::2], pairs[1::2]))
    )


@cache
def short_flags(command: str) -> Mapping[str, tuple[str, Releases]]:
    """The short flags, `-tp`, with the long flag and the releases."""
    own = {short: (flag, _spans(held)) for short, (flag, held) in _DATA["short"].get(command, {}).items()}  # fmt: skip
    return {**short_flags("serve"), **own} if command in _ENGINE_TOO else own


def sort_of(command: str, flag: str) -> str:
    """`int`, `float`, `json`, `list`, `switch` (takes no value) or `text`."""
    for one in (command, "serve"):
        found = _DATA["types"].get(one, {}).get(flag)
        if found:
            return str(found)
    return "text"


def choices(command: str, flag: str, version: str) -> frozenset[str] | None:
    """The values that a release allows; None when any is."""
    known = _DATA["choices"].get(command, {}).get(flag) or _DATA["choices"]["serve"].get(flag)
    return _allowed(known, version)


def variable_choices(name: str, version: str) -> frozenset[str] | None:
    """The values that a release allows for a variable; None when any is."""
    return _allowed(_DATA["environment_choices"].get(name), version)


def _allowed(known: Mapping[str, str] | None, version: str) -> frozenset[str] | None:
    if known is None or version in _spans(known.get("*", "")):
        return None
    return frozenset(value for value, held in known.items() if version in _spans(held))


def bounds(flag: str) -> Mapping[str, float]:
    """`at_least`, `above` and `at_most` of a flag's number, as vLLM's config checks them."""
    found: Mapping[str, float] = _DATA["ranges"].get(flag, {})
    return found


def variable(name: str) -> Releases:
    """The releases that read a VLLM_ variable."""
    first, last = _DATA["environment"].get(name, (None, None))
    return _spans(f"{first}-{last}") if first else frozenset()


def subcommand(name: str) -> Releases:
    """The releases with `vllm NAME`."""
    return _spans(_DATA["subcommands"].get(name, ""))


@cache
def metrics(version: str) -> frozenset[str]:
    """The names on a release's `/metrics`, of its default engine and without hidden ones."""
    return frozenset(name for name, held in _DATA["metrics"].items() if version in _spans(held))


def metric(name: str) -> Releases:
    """The releases that expose a metric, named with or without `_total`, `_sum`, ..."""
    endings = ("", "_total", "_sum", "_count", "_bucket", "_info")
    return frozenset(
        version for version in VERSIONS if any(name + end in metrics(version) for end in endings)
    )
