"""With hyperscan and without it the gate finds the same words."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TypeVar

import pytest

from tests.traffic import FIXTURES, traffic
from vllm_triage import gate as gate_module
from vllm_triage.catalogue import load
from vllm_triage.gate import Gate, planned

T = TypeVar("T")
ITEMS = [
    (pattern.keywords, pattern.any_of, f"{kind}:{pattern.name}")
    for kind, rule in load().rules.items()
    for pattern in rule.worded
]


def texts() -> Iterator[str]:
    for path in sorted(FIXTURES.rglob("*.log")):
        lines = path.read_text("utf-8", "replace").splitlines()
        yield from lines
        yield "\n".join(lines[:200])
    for row in traffic(5, 2000):
        yield row.decode()
    yield from ("", "\0", "x" * 100_000 + "CUDA out of memory", "█ é \udcff CUDA out of memory")


def gate_of(items: Sequence[tuple[tuple[str, ...], tuple[str, ...], T]]) -> Gate[T]:
    return Gate(
        [item for _, _, item in items],
        planned((words, any_of, place) for place, (words, any_of, _) in enumerate(items)),
    )


def test_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hyperscan")
    monkeypatch.setattr(gate_module, "_WORTH_IT", sys.maxsize)
    plain = gate_of(ITEMS)
    expected = [list(plain.candidates(text)) for text in texts()]
    monkeypatch.setattr(gate_module, "_WORTH_IT", 1)
    fast = gate_of(ITEMS)

    assert [list(fast.candidates(text)) for text in texts()] == expected
    assert fast._literals is not None
    assert sum(map(bool, expected)) > 1000


def test_threads_that_share_a_gate_all_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hyperscan")
    monkeypatch.setattr(gate_module, "_WORTH_IT", 1)
    gate = gate_of(ITEMS)
    text = "\n".join(row.decode() for row in traffic(5, 300))
    expected = list(gate.candidates(text))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: list(gate.candidates(text)), range(400)))

    assert expected
    assert all(one == expected for one in found)
    assert gate._literals is not None


class _Broken:
    def __init__(self, where: str) -> None:
        self._where = where

    def compile(self, **_: object) -> None:
        if self._where == "compile":
            raise ValueError("no compiler")

    def scan(self, data: bytes, *, match_event_handler: object) -> None:
        if self._where == "scan" or (self._where == "later" and data != b"first"):
            raise RuntimeError("scratch in use")
        match_event_handler(0, 0, 1, 0, None)  # type: ignore[operator]


@pytest.mark.parametrize("where", ["import", "compile", "scan", "later"])
def test_a_broken_hyperscan_is_as_good_as_none(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("hyperscan")
    module.__dict__.update(
        Database=lambda mode: _Broken(where), HS_MODE_BLOCK=1, HS_FLAG_SINGLEMATCH=8
    )
    monkeypatch.setitem(sys.modules, "hyperscan", None if where == "import" else module)
    monkeypatch.setattr(gate_module, "_WORTH_IT", 1)
    words = ["first", *(f"word number {number}" for number in range(50))]
    gate = gate_of([((word,), (), word) for word in words])

    assert list(gate.candidates("a word number 7.")) == ["word number 7"]
    assert list(gate.candidates("first")) == ["first"]
