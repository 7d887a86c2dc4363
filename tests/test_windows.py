"""What is learnt of lines of engine statistics, and what such a line is to the rules."""

from collections.abc import Callable
from typing import Any

import pytest

from vllm_triage import learning
from vllm_triage.catalogue import Catalogue, load
from vllm_triage.envelopes import Unwrapper
from vllm_triage.learning import Learner
from vllm_triage.lines import Origin
from vllm_triage.plateaus import Steady
from vllm_triage.probes import place_of
from vllm_triage.rules import Pattern
from vllm_triage.shapes import Bound, State, Window

LINE = "(APIServer pid=1) INFO 01-02 03:04:05 [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 250.0 tokens/s, Running: 5 reqs, Waiting: 0 reqs, GPU KV cache usage: 12.0%, Prefix cache hit rate: 0.0%"


def window(**changes: Any) -> Window:
    """Of lines `running generation prompt waiting cache`, each two wide."""
    places: dict[str, Any] = {
        name: slice(3 * at, 3 * at + 2)
        for at, name in enumerate(("running", "generation", "prompt", "waiting", "cache_pct"))
    }
    return Window(**{**places, "engine": None, "rules": (), "ids": (), **changes})


def test_a_line_that_shows_work_is_busy_and_may_show_steady_decoding() -> None:
    assert window().look(b"05 50 00 00 12") == (State.BUSY, Steady(5.0, 50.0, 12.0))
    assert window().look(b"00 50 00 00 12") == (State.IDLE, None)
    # Requests wait, so what is generated is not all that could be.
    assert window().look(b"05 50 00 01 12") == (State.BUSY, None)


@pytest.mark.parametrize("name", ["prompt", "waiting", "cache_pct", "generation"])
def test_without_one_of_its_numbers_no_decoding_is_steady(name: str) -> None:
    assert window(**{name: None}).look(b"05 50 00 00 12") == (State.BUSY, None)


def test_a_line_that_does_not_say_how_many_run_shows_no_work() -> None:
    assert window(running=None).look(b"05 50 00 00 12") == (State.IDLE, None)


def test_a_line_whose_numbers_are_none_must_be_read() -> None:
    assert window().look(b"05 xx 00 00 12")[0] is State.ASKED


@pytest.mark.parametrize(
    ("bounds", "state"),
    [
        ((Bound(slice(12, 14), 10.0, 99.0),), State.ASKED),
        ((Bound(slice(12, 14), 13.0, 99.0),), State.BUSY),
        # Ten tokens for each of five requests.
        ((Bound(None, 0.0, 10.0),), State.ASKED),
        ((Bound(None, 0.0, 9.0),), State.BUSY),
        # What a pattern states itself is within its bounds or never is.
        ((Bound(3.0, 1.0, 5.0), Bound(slice(12, 14), 0.0, 99.0)), State.ASKED),
        ((Bound(7.0, 1.0, 5.0), Bound(slice(12, 14), 0.0, 99.0)), State.BUSY),
    ],
)
def test_a_line_within_all_bounds_of_a_rule_must_be_read(
    bounds: tuple[Bound, ...], state: State
) -> None:
    assert window(rules=(bounds,)).look(b"05 50 00 00 12")[0] is state


def shift(span: tuple[int, int]) -> slice:
    return slice(*span)


def asking(regex: str, **changes: Any) -> Pattern:
    catalogue = load()
    example = next(one for rule in catalogue.rules.values() for one in rule.worded)
    plain: dict[str, Any] = {
        "regex": regex, "when": None, "needs": (), "at_least": {}, "at_most": {}, "facts": {},
    }  # fmt: skip
    return example.model_copy(update={**plain, **changes})


TEXTS = ["a 11 b 22", "a 33 b 44"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (asking(r"a (?P<running>\d+)", at_least={"running": 5}), ((slice(2, 4), 5.0),)),
        (asking(r"a (?P<running>\d+)", at_least={"waiting": 5}, facts={"waiting": "7"}), ((7.0, 5.0),)),
        # Nothing tells the number but the line itself.
        (asking(r"a (?P<running>\d+)", at_least={"waiting": 5}), None),
        # It stands in another place in another line.
        (asking(r"(?:a|33 b) (?P<running>11|44)", at_least={"running": 5}), None),
        # Without bounds, or with a condition besides, no number decides.
        (asking(r"a (?P<running>\d+)"), None),
        (asking(r"a (?P<running>\d+)", at_least={"running": 5}, needs=("model",)), None),
    ],
)  # fmt: skip
def test_of_a_pattern_for_windows_its_bounds_are_learnt_where_they_decide(
    pattern: Pattern, expected: tuple[tuple[object, float], ...] | None
) -> None:
    found = learning._bounds(pattern, TEXTS, shift)

    assert (None if found is None else tuple((one[0], one[1]) for one in found)) == expected


def test_a_value_that_stands_elsewhere_in_another_line_has_no_place() -> None:
    assert place_of([b"11 x 11", b"22 x 33"], ["11", "33"]) == (True, slice(5, 7))
    assert place_of([b"11 x 11", b"22 33 x"], ["11", "33"]) == (False, None)
    assert place_of([b"11", b"22"], [None, None]) == (True, None)


@pytest.fixture
def unwrapper() -> Unwrapper:
    """As it is after some lines of the same process."""
    found = Unwrapper()
    for number in (1, 2):
        list(found.feed(number, LINE))
    return found


def test_statistics_are_learnt_and_a_longer_number_moves_what_follows(
    unwrapper: Unwrapper,
) -> None:
    shape = Learner(load()).learn(LINE.encode(), unwrapper)

    assert shape is not None
    assert shape.window is not None
    assert shape.window.running is not None
    assert LINE[shape.window.running] == "5"
    assert shape.origin is Origin.STATISTICS


@pytest.mark.parametrize("broken", ["_bounds", "shift_of"])
def test_statistics_whose_rules_cannot_be_learnt_are_read_one_by_one(
    broken: str, unwrapper: Unwrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(learning, broken, nothing)

    assert Learner(load()).learn(LINE.encode(), unwrapper) is None


def test_a_pattern_that_took_too_long_is_not_tried_on_the_next_shape(
    unwrapper: Unwrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def slow(pattern: Pattern, texts: list[str], shift: Callable[..., slice]) -> None:
        tried.append(pattern.name)
        raise TimeoutError

    monkeypatch.setattr(learning, "_bounds", slow)
    learner = Learner(load())

    assert learner.learn(LINE.encode(), unwrapper) is None
    assert learner.learn(LINE.replace("Engine 000", "Engine 0000").encode(), unwrapper) is None
    assert len(tried) == len(set(tried))
    assert tried


@pytest.mark.parametrize(
    "line",
    [
        # Its digits may be any, so one of them must not decide what the rest is.
        "[shape 1 of 2",
        "x" * 20,
    ],
)
def test_what_is_no_record_of_the_server_is_not_learnt(
    line: str, catalogue: Catalogue, unwrapper: Unwrapper
) -> None:
    learner = Learner(catalogue)

    assert learner.learn(line.encode(), unwrapper) is None
    assert learner.learn_head(line.encode(), unwrapper) is None
