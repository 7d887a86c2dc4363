"""How many of the messages that vLLM and its libraries print are told as what they are."""

import tomllib
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest

from tests.conftest import FIXTURES
from tests.messages import Message, messages, printed, reviews
from vllm_triage import Scanner
from vllm_triage.catalogue import load

LEAST = {"tier 1": 0.97, "upstream": 0.97, "tier 2": 0.90}


class Result(NamedTuple):
    """What a message is told to be: `known`, `reviewed` or `missed`."""

    message: Message
    found: str
    state: str


BASE = Scanner(catalogue=load())


def told(message: Message) -> str:
    scanner = Scanner("message.log", like=BASE)
    for number, row in enumerate(printed(message), 1):
        scanner.feed_numbered(number, row)
    scanner.end_source()
    root = scanner.report().root
    return root.kind.value if root else "none"


@cache
def results() -> tuple[Result, ...]:
    out = []
    for message in messages():
        found = told(message)
        state = "known" if found == message.kind else "missed"
        if state == "missed":
            review = next((one for one in reviews() if one.covers(message)), None)
            if review is not None and review.kind == found:
                state = "reviewed"
        out.append(Result(message, found, state))
    return tuple(out)


@pytest.mark.parametrize("tier", LEAST)
def test_nearly_every_message_is_told_as_its_kind(
    tier: str, record_property: Callable[[str, object], None]
) -> None:
    found = [result for result in results() if result.message.tier == tier]
    known = sum(result.state == "known" for result in found)
    missed = [result for result in found if result.state == "missed"]
    share = known / (known + len(missed))
    record_property(
        "messages",
        f"{tier}: {known} of {known + len(missed)} told as their kind, {share:.1%}; "
        f"{len(found) - known - len(missed)} reviewed as not their label",
    )
    first = "\n".join(f"{one.found}, not {one.message.kind}: {one.message.template}" for one in missed[:50])  # fmt: skip

    assert share >= LEAST[tier], first


def test_every_review_is_needed() -> None:
    needed: defaultdict[int, int] = defaultdict(int)
    for result in results():
        if result.state == "reviewed":
            index = next(i for i, one in enumerate(reviews()) if one.covers(result.message))
            needed[index] += 1

    unused = [one for index, one in enumerate(reviews()) if index not in needed]
    assert not unused


def test_the_readme_shows_the_share_of_each_kind() -> None:
    from tests.kinds_table import END, README, START, table

    shown = README.read_text("utf-8").partition(START)[2].partition(END)[0]
    assert shown == table(), "write it again: python -m tests.kinds_table"


def test_what_is_missed_is_listed_with_its_reason() -> None:
    listed = tomllib.loads((FIXTURES / "vllm" / "missed.toml").read_text("utf-8"))["missed"]
    missed = [result for result in results() if result.state == "missed"]

    assert {(one["label"], one["found"], one["file"], one["template"]) for one in listed} == {
        (one.message.kind, one.found, one.message.file, one.message.template) for one in missed
    }
    assert all(len(one["reason"]) > 20 for one in listed)
