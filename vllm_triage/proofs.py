"""Proofs: whether a user's patterns match the hits that they give themselves."""

from collections.abc import Iterator, Sequence

import regex

from vllm_triage.assembler import Assembler
from vllm_triage.envelopes import Unwrapper
from vllm_triage.lines import parse
from vllm_triage.rules import Pattern

_TIMEOUT_S = 1.0


def unmet(patterns: Sequence[Pattern]) -> list[str]:
    """The names of patterns whose regex or keywords miss one of their own hits, whatever else they ask for."""
    return [
        one.name
        for one in patterns
        if one.artefact is None and not all(_is_met(one, hit) for hit in one.hits)
    ]


def _is_met(pattern: Pattern, hit: str) -> bool:
    expression = regex.compile(pattern.regex, regex.MULTILINE)
    try:
        return any(
            all(word in text for word in pattern.keywords)
            and (not pattern.any_of or any(word in text for word in pattern.any_of))
            and expression.search(text, timeout=_TIMEOUT_S) is not None
            for text in (hit, *_texts("\n".join([hit] * pattern.times)))
        )
    except TimeoutError:
        # A run says so itself.
        return True


def _texts(hit: str) -> Iterator[str]:
    """What is said in a hit, event by event."""
    unwrapper, assembler = Unwrapper(), Assembler()
    items = [item for number, row in enumerate(hit.split("\n"), 1) for item in unwrapper.feed(number, row)]  # fmt: skip
    for item in [*items, *unwrapper.close()]:
        for line in parse("hit", item.number, item.text, time=item.time, level=item.level, container=item.container):  # fmt: skip
            yield from (event.text for event in assembler.feed(line))
    yield from (event.text for event in assembler.close())
