"""Tracebacks that were seen before are taken by look-up: what is told is the same as by reading each line."""

import random
from collections.abc import Iterable, Iterator

import pytest

from vllm_triage import Scanner
from vllm_triage.catalogue import load
from vllm_triage.kinds import Kind
from vllm_triage.matches import Match, Unknown
from vllm_triage.tracebacks import Frame
from vllm_triage.trails import Tree

CATALOGUE = load()
BANNER = "(APIServer pid=1) INFO 12-01 06:00:00 [api_server.py:1] vLLM API server version 0.10.2"
READY = "(APIServer pid=1) INFO:     Application startup complete."
HEADER = "Traceback (most recent call last):"
CONTEXT = "During handling of the above exception, another exception occurred:"
CAUSE = "The above exception was the direct cause of the following exception:"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}.00 GiB. GPU {} has a total capacity of 79.15 GiB of which 3.50 MiB is free."
INSIDE = (
    '  File "/usr/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", line 436, in execute_model',
    "    output = self.model_runner.execute_model(",
    "             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    '  File "/usr/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 125, in forward',
    "    return F.linear(input, self.weight, self.bias)",
    '    raise ValueError("No available memory for the cache blocks. "',
    '                     "Try increasing `gpu_memory_utilization`.")',
)
ODD = (
    "    ü = 1",
    "    a &amp; b",
    "    [Rank 3] watchdog",
    "\t tab",
    "ValueError: No available memory for the cache blocks.",
    "Odd7Error: nobody knows this one",
    "KV cache size: 1,000 tokens",
    "Received request a: prompt: 'CUDA out of memory'",
    "EngineCore failed to start.",
    "NCCL WARN Cuda failure 2 'out of memory'",
    f"(Other pid=9) {HEADER}",
    "exit code 033",
    "a\x1b[31mred",
    "words  with two blanks",
    "",
    "\r",
)


class Noting(Scanner):
    """Notes all that was recognised, and from which lines."""

    def __init__(self) -> None:
        super().__init__("x.log", catalogue=CATALOGUE)
        self.noted: list[object] = []
        add = self._collector.add

        def note(item: Match | Unknown) -> None:
            event = item.event
            kind = item.kind if isinstance(item, Match) else None
            self.noted.append(
                (
                    kind,
                    event.lines,
                    event.text,
                    event.frames,
                    event.link,
                    item.phase,
                    item.run.index,
                )
            )
            add(item)

        self._collector.add = note  # type: ignore[method-assign]


def told(scanner: Noting) -> object:
    scanner.end_source()
    report = scanner.report()
    return scanner.noted, report.incidents, report.runs, [one.format for one in report.sources]


def on_the_long_road(rows: Iterable[str]) -> object:
    scanner = Noting()
    for number, row in enumerate(rows, 1):
        scanner._long_road(number, row)
    return told(scanner)


def line_by_line(rows: Iterable[str]) -> object:
    scanner = Noting()
    for number, row in enumerate(rows, 1):
        scanner.feed_numbered(number, row)
    return told(scanner)


def in_blocks(rows: list[str], size: int) -> tuple[object, bool]:
    """What is told, and whether the blocks were taken for ones of tracebacks at some time."""
    scanner = Noting()
    was_dense = False
    for start in range(0, len(rows), size):
        scanner.feed_block(start + 1, "\n".join(rows[start : start + size]).encode())
        was_dense = was_dense or scanner.blocks.is_dense
    return told(scanner), was_dense


def traceback(chance: random.Random, rank: int, oddity: float) -> Iterator[str]:
    """A chain of exceptions, most as they were before, some with lines that are unlike any other."""
    yield "WorkerProc hit an exception."
    for link in range(chance.randrange(1, 4)):
        if link:
            yield from ("", chance.choice((CONTEXT, CAUSE)), "")
        yield HEADER + chance.choice(("", "", "\r"))
        for text in INSIDE[:5] * 4 + INSIDE[: chance.randrange(2, 8)]:
            if chance.random() < oddity:
                yield chance.choice(ODD)
            yield text
        if chance.random() < 0.9:
            yield OOM.format(chance.randrange(2, 9), rank)


def storm(seed: int, lives: int, workers: int, oddity: float = 0.0) -> list[str]:
    """A crash loop; lines of workers interleave, and some die in the middle of a traceback."""
    chance = random.Random(seed)
    rows = [BANNER, READY]
    for life in range(lives):
        if chance.random() < 0.3:
            rows += [BANNER, READY]
        first = 1000 * life + 10
        alive = {rank: traceback(chance, rank, oddity) for rank in range(workers)}
        while alive:
            rank = chance.choice(list(alive))
            text = next(alive[rank], None)
            if text is None or chance.random() < 0.002:
                del alive[rank]
                continue
            second = 0 if chance.random() > oddity else chance.randrange(60)
            place = "[multiproc_executor.py:654] " if chance.random() > oddity / 4 else ""
            stamp = f"ERROR 12-01 06:30:{second:02} " if place else ""
            rows.append(f"(Worker_TP{rank} pid={first + rank}) {stamp}{place}{text}")
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_loop_tells_the_same(seed: int) -> None:
    rows = storm(seed, 12, 6)
    whole = on_the_long_road(rows)
    at_once, was_dense = in_blocks(rows, 200)

    assert was_dense
    assert at_once == whole
    assert line_by_line(rows) == whole


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_loop_with_odd_lines_tells_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr("vllm_triage.trails._MAX_TREE", 30)
        monkeypatch.setattr("vllm_triage.express.MAX_STEPS", 5)
        monkeypatch.setattr("vllm_triage.express._MAX_LANES", 4)
    rows = storm(seed, 12, 6, 0.08)
    whole = on_the_long_road(rows)

    assert in_blocks(rows, 150)[0] == whole
    assert line_by_line(rows) == whole


@pytest.mark.parametrize("seed", range(4))
def test_what_silent_processes_left_open_is_told_in_the_same_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_triage.assembler._MANY", 16)
    monkeypatch.setattr("vllm_triage.assembler.MAX_PROCESSES", 24)
    rows = storm(seed, 10, 12 + 8 * (seed % 3), 0.02)
    whole = on_the_long_road(rows)

    assert in_blocks(rows, 150)[0] == whole
    assert line_by_line(rows) == whole


def test_a_worker_that_keeps_speaking_is_not_ended_for_those_that_are_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vllm_triage.assembler._MANY", 16)
    monkeypatch.setattr("vllm_triage.assembler.MAX_PROCESSES", 16)
    head = "(Worker_TP0 pid=7) ERROR 12-01 06:30:00 [multiproc_executor.py:654] "
    known = [head + text for text in (HEADER, *INSIDE[:5], OOM.format(2, 0), "")]
    others = [
        f"(Other pid={number}) WARNING 12-01 06:30:00 [a.py:1] a" for number in range(100, 200)
    ]
    again = [BANNER, *known, head + HEADER]
    for place, text in enumerate(INSIDE[:5]):
        again += [head + text, *others[20 * place : 20 * place + 8]]
    again.append(head + OOM.format(2, 0))

    noted = line_by_line(again)

    assert noted == on_the_long_road(again)
    kinds = [(one[0], len(one[3])) for one in noted[0] if one[0] is not None]  # type: ignore[index]
    assert kinds == [(Kind.OOM_LOAD, 2)] * 2


def test_a_tree_with_very_many_lines_begins_anew_and_keeps_what_was_before_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vllm_triage.trails._MAX_TREE", 3)
    tree = Tree()
    frame = Frame("a.py", 1, "f")
    one = tree.follow(tree.root, b" one", "one", frame)
    two = tree.follow(one, b" two", "two", None)
    three = tree.follow(two, b" three", "three", frame)
    assert tree.follow(one, b" two", "two", None) is two

    other = tree.follow(tree.root, b" other", "other", None)

    assert list(tree.root.values()) == [other]
    assert not one
    assert not two
    # A process that is behind a line still knows the way that led there.
    assert three.frames == (frame, frame)
    assert two.source == [two]
    assert tree.follow(tree.root, b" one", "one", frame) is not one
