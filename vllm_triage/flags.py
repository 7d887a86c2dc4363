"""Flags: which release of vLLM accepts which, and what became of those that are gone."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from vllm_triage import templates
from vllm_triage.tables import table
from vllm_triage.versions import holds, parse

SERVE = "serve"
_ALIKE = 0.75


class Successor(NamedTuple):
    """What does the job of a flag that a release does not accept."""

    words: tuple[str, ...]
    """The flag and its value; empty where nothing is needed in its place."""
    why: str | None
    """Half a line, where the table says it."""


def releases(since: str | None = None, until: str | None = None) -> tuple[str, ...]:
    """The releases whose flags were read, oldest first, within `since`..`until`."""
    return tuple(version for version in table("flags")["versions"] if holds(version, since, until))


def accepts(flag: str, version: str | None, command: str = SERVE) -> bool:
    """Tell whether a release accepts a flag; of an unknown release, whether the newest does."""
    return flag in _accepted(_nearest_release(version), command)


def is_known(flag: str) -> bool:
    """Tell whether any release's server accepts a flag."""
    return flag in table("flags")[SERVE]


def came_with(flag: str, version: str | None) -> str | None:
    """The first release that accepts a flag, when that is later than `version`."""
    pairs = table("flags")[SERVE].get(flag, [])
    later = [first for first in pairs[::2] if not holds(version, first, None)]
    return later[0] if later and not accepts(flag, version) else None


def lacking(
    flag: str, since: str | None, until: str | None, command: str = SERVE
) -> tuple[str, ...]:
    """The releases of an interval that do not accept a flag."""
    return tuple(v for v in releases(since, until) if flag not in _accepted(v, command))


def refusing(flag: str, value: str, since: str | None, until: str | None) -> tuple[str, ...]:
    """The releases of an interval that check a flag's values and refuse this one."""
    values: Mapping[str, Sequence[str]] = table("flags")["choices"].get(flag)
    if values is None:
        return ()
    checked = set(_within(values["*"]))
    fine = checked if value in values["always"] else set(_within(values.get(value, ())))
    return tuple(v for v in releases(since, until) if v in checked and v not in fine)


def nearest(flag: str, version: str | None) -> str | None:
    """The flag of a release that is spelt most like an unknown one; None when none is near."""
    known = _accepted(_nearest_release(version), SERVE)
    spelt = "--" + flag.strip("-").replace("_", "-").lower()
    if spelt in known:
        return spelt if spelt != flag else None
    import difflib

    found = difflib.get_close_matches(spelt, sorted(known), 1, _ALIKE)
    return found[0] if found else None


def successor(flag: str, value: str | None, version: str | None) -> Successor | None:
    """What a release has in the place of a renamed or dropped flag; None when that is not known."""
    entry = table("renamed-flags").get(flag)
    if entry is None or (version is not None and accepts(flag, version)):
        return None
    forms = [form for form in entry["form"] if holds(version, form.get("since"), None)]
    if not forms:
        return None
    form = forms[-1]
    name = form.get("flag")
    if name is None:
        return Successor((), entry.get("why"))
    given = form.get("values", {}).get(value, value)
    text = templates.fill(form.get("value", ""), {"value": given} if given else {})
    return Successor((name, text) if text else (name,), entry.get("why"))


def renamed() -> Iterator[tuple[str, str | None, str | None, str | None]]:
    """All forms of the table: the old flag, the first release, the new flag, its value."""
    for flag, entry in table("renamed-flags").items():
        for form in entry["form"]:
            yield flag, form.get("since"), form.get("flag"), form.get("value")


def _within(pairs: Sequence[str]) -> Iterator[str]:
    for index in range(0, len(pairs), 2):
        last = pairs[index + 1] if index + 1 < len(pairs) else None
        yield from releases(pairs[index], last)


@cache
def _accepted(version: str, command: str) -> frozenset[str]:
    data = table("flags")
    names = [command] if command in (SERVE, "bench serve") else [SERVE, command]
    return frozenset(
        flag for name in names for flag, pairs in data[name].items() if version in _within(pairs)
    )


def _nearest_release(version: str | None) -> str:
    """The release that was read at or before this one; the newest for an unknown one."""
    known: Sequence[str] = table("flags")["versions"]
    number = parse(version)
    if number is None:
        return known[-1]
    earlier = [one for one in known if (parse(one) or number) <= number]
    return earlier[-1] if earlier else known[0]
