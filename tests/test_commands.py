"""Every flag and VLLM_ variable of every step exists in every release that the step claims."""

import json
from collections.abc import Iterator

import pytest
import regex

from tests.conftest import FIXTURES
from vllm_triage.catalogue import load
from vllm_triage.rules import Fix
from vllm_triage.templates import fill
from vllm_triage.versions import parse

RELEASES = json.loads((FIXTURES / "vllm" / "releases.json").read_text("utf-8"))
VERSIONS: list[str] = RELEASES["versions"]
_COMMAND = regex.compile(
    r"(?P<env>(?:\w+=\S* )*)(?:vllm (?P<sub>serve|bench (?:throughput|latency|serve))|vllm/vllm-openai\S*)\b(?P<rest>[^|;&]*)"
)
_FLAG = regex.compile(r"(?<![\w-])--[a-z][\w-]*")
_ENGINE_TOO = ("bench throughput", "bench latency")


def claims() -> Iterator[tuple[str, str, str | None, str | None]]:
    catalogue = load()
    entries: list[tuple[str, tuple[Fix, ...]]] = [
        (k.value, r.fix) for k, r in catalogue.rules.items()
    ]
    entries += [(name, topic.fix) for name, topic in catalogue.topics.items()]
    for name, fixes in entries:
        for position, fix in enumerate(fixes, 1):
            forms = [
                (form.command, form.since or fix.since, form.until or fix.until)
                for form in fix.form
            ]
            for command, since, until in [(fix.command, fix.since, fix.until), *forms]:
                if command:
                    yield f"{name}-{position}", fill(command, {}) or command, since, until


def span(since: str | None, until: str | None) -> set[str]:
    first, last = parse(since), parse(until)
    return {
        version
        for version in VERSIONS
        if (number := parse(version))
        and (first is None or number >= first)
        and (last is None or number <= last)
    }


@pytest.mark.parametrize(
    ("command", "since", "until"),
    [pytest.param(command, since, until, id=name) for name, command, since, until in claims()],
)
def test_a_command_holds_for_the_releases_it_claims(
    command: str, since: str | None, until: str | None
) -> None:
    claimed = span(since, until)
    wrong: list[str] = []
    for found in _COMMAND.finditer(command):
        sub = found["sub"] or "serve"
        known = {
            **(RELEASES["flags"]["serve"] if sub in _ENGINE_TOO else {}),
            **RELEASES["flags"][sub],
        }
        for flag in _FLAG.findall(found["rest"].split(" -- ")[0]):
            if flag in ("--help", "--model") or "torchrun" in command:
                continue
            first, last = known.get(flag, (None, None))
            held = span(first, last) if first else set()
            if claimed - held:
                wrong.append(
                    f"{flag}: claimed for {min(claimed, key=VERSIONS.index)} on, known {first} - {last}"
                )
        for name in regex.findall(r"\b(VLLM_\w+)=", found["env"]):
            first, last = RELEASES["environment"].get(name, (None, None))
            held = span(first, last) if first else set()
            if claimed - held:
                wrong.append(f"{name}: known {first} - {last}")

    assert wrong == []
