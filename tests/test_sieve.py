"""Lines that are not read one by one: what is told is the same as if they had been."""

import random
from pathlib import Path

import pytest

from tests.traffic import FIXTURES, WRAPS, traffic
from vllm_triage import Scanner
from vllm_triage.catalogue import load
from vllm_triage.envelopes import Unwrapper
from vllm_triage.learning import Learner
from vllm_triage.matches import Match, Unknown
from vllm_triage.releases import Release
from vllm_triage.rules import Pattern
from vllm_triage.sources import BLANK, Splitter, decoded

LIKE = Scanner()
LOGS = sorted(path for path in FIXTURES.rglob("*.log"))


class Noting(Scanner):
    """Notes all that was recognised, and from which lines."""

    def __init__(self) -> None:
        super().__init__("x.log", like=LIKE)
        self.noted: list[object] = []
        add = self._collector.add

        def note(item: Match | Unknown) -> None:
            event = item.event
            kind = item.kind if isinstance(item, Match) else None
            lines = [line.number for line in event.lines]
            self.noted.append((kind, lines, event.text, event.frames, event.link, item.phase))
            add(item)

        self._collector.add = note  # type: ignore[method-assign]


def one_by_one(data: bytes) -> Noting:
    scanner = Noting()
    before = b"-"
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        is_told_by_others = scanner._unwrapper.state is None
        if line not in BLANK or before not in BLANK or is_told_by_others:
            scanner.feed_numbered(number, decoded(line))
        before = line
    scanner.end_source()
    return scanner


def at_once(data: bytes, size: int) -> Noting:
    scanner = Noting()
    splitter = Splitter()
    number = 1
    blocks = [
        block
        for start in range(0, len(data), size)
        for block in splitter.blocks(data[start : start + size])
    ]
    for block in [*blocks, *splitter.close()]:
        scanner.feed_block(number, block)
        number += block.count(b"\n") + 1
    scanner.end_source()
    return scanner


def told(scanner: Noting) -> object:
    report = scanner.report()
    runs = [
        {
            name: value
            for name, value in vars(run).items()
            if name not in ("release", "memory", "echoes", "platform", "meeting")
        }
        | {"platform": (run.platform.pod, run.platform.is_slurm, run.platform.make)}
        | {"meeting": vars(run.meeting)}
        | {"release": {name: getattr(run.release, name) for name in Release.__slots__}}
        for run in scanner._runs.all
    ]
    return (
        scanner.noted,
        report.model_dump(exclude={"sources"}),
        [source.format for source in report.sources],
        runs,
        scanner._assembler._windows._busy,
    )


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("seed", range(4))
def test_traffic_tells_the_same(wrap: str, seed: int) -> None:
    data = b"".join(traffic(seed, 500, wrap=wrap))
    size = random.Random(seed).choice((700, 5000, 65536))

    assert told(at_once(data, size)) == told(one_by_one(data))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_real_log_between_traffic_tells_the_same(path: Path) -> None:
    traffic_before = b"".join(traffic(1, 60, crash=False))
    traffic_after = b"".join(traffic(2, 60, crash=False))
    data = traffic_before + path.read_bytes()[-200_000:] + b"\n" + traffic_after

    assert told(at_once(data, 4096)) == told(one_by_one(data))


ACCESS = 'INFO:     10.0.0.1:1234 - "POST /v1/completions HTTP/1.1" 200 OK'
BANNER = "(APIServer pid=1) INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.10.2"
OTHER = '(APIServer pid=9) INFO:     10.0.0.1:1234 - "POST /v1/completions HTTP/1.1" 200 OK'
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
REST = "  GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free."


def facts(*rows: str) -> dict[str, object]:
    data = "".join(f"{row}\n" for row in [ACCESS, OTHER] * 4 + list(rows)).encode()
    (incident,) = at_once(data, 65536).report().incidents
    return incident.facts.model_dump(exclude_none=True)


def test_an_access_line_that_is_not_read_ends_its_process_s_message() -> None:
    assert "total_bytes" in facts(OOM, REST)
    assert "total_bytes" not in facts(OOM, ACCESS, REST)
    assert "total_bytes" in facts(OOM, OTHER, REST)


HEAD = "(APIServer pid=1) {} 01-02 03:04:05 [x.py:7] "
PATTERNS = [
    pytest.param(pattern, id=f"{kind}:{pattern.name}")
    for kind, rule in load().rules.items()
    for pattern in rule.worded
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_a_pattern_matches_is_told_however_often_it_comes(pattern: Pattern) -> None:
    start = [BANNER, ACCESS, OTHER] * 3
    for hit in pattern.hits:
        for level in ("INFO", "WARNING"):
            head = HEAD.format(level)
            lines = [text for line in hit.split("\n") for text in (f"{head}{line}", line)]
            rows = start + [*lines, OTHER] * 8 + [ACCESS] * 3
            data = "\n".join(rows).encode("utf-8", "surrogateescape")

            assert told(at_once(data, 65536)) == told(one_by_one(data))


def logged(
    text: str, *, second: int = 59, level: str = "WARNING", pid: int = 1, place: str = "x.py:7"
) -> str:
    return f"(APIServer pid={pid}) {level} 01-02 03:04:{second:02} [{place}] {text}"


NOTE = logged("a note")
FAULT = logged("Chat template rejected the request: roles must alternate")


def test_numbers_are_not_taken_from_where_others_stand() -> None:
    """A place is told by its digits: a pid of 1 is not the 1 of an address before it."""
    learner = Learner(load())
    line = f"[pod/vllm-1-{'1' * 20}/server] (APIServer_1 pid=1) {ACCESS}".encode()
    unwrapper = Unwrapper()
    list(unwrapper.feed(1, BANNER))
    list(unwrapper.feed(2, line.decode()))
    shape = learner.learn(line, unwrapper)

    assert shape is not None
    assert shape.pid is not None
    assert line[: shape.pid.start].endswith(b"pid=")
    assert shape.process is not None
    assert line[shape.process] == b"APIServer_1"
    assert learner.learn(b"1" * 800 + line, unwrapper) is None


OWN = f"(APIServer pid=1) {ACCESS}"
INFO = logged("could not do it", level="INFO")
LEARNT = [
    BANNER,
    *[
        row
        for second in range(12)
        for row in (
            OWN,
            OTHER,
            logged("a note", second=second),
            logged("could not do it", second=second, level="INFO"),
            OWN,
        )
    ],
]
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/a/vllm/b.py", line 7, in c',
    "    raise",
]


@pytest.mark.parametrize(
    "rows",
    [
        [NOTE, FAULT],
        [NOTE, NOTE, NOTE, FAULT],
        [NOTE, OWN, FAULT],
        [NOTE, OTHER, FAULT],
        [NOTE, OWN, NOTE, OTHER, FAULT],
        [FAULT, NOTE, OWN, NOTE],
        [logged("a note", second=58), NOTE, FAULT],
        [logged("a note", pid=2), NOTE, FAULT],
        [INFO, *(logged(row, level="INFO") for row in TRACEBACK), logged("RuntimeError: CUDA error: x", level="INFO")],
        [INFO, OWN, *(logged(row, level="INFO") for row in TRACEBACK), logged("RuntimeError: CUDA error: x", level="INFO")],
        [*(logged(row, level="ERROR") for row in TRACEBACK), NOTE, logged("torch.OutOfMemoryError: CUDA out of memory.", level="ERROR")],
        [logged(TRACEBACK[0], level="ERROR"), logged(TRACEBACK[1].strip(), level="ERROR"), NOTE, logged("torch.OutOfMemoryError: CUDA out of memory.", level="ERROR"), OWN, NOTE],
        [logged(TRACEBACK[0], level="ERROR"), logged(TRACEBACK[1].strip(), level="ERROR"), NOTE, OWN, logged("raise it", level="ERROR"), logged("torch.OutOfMemoryError: CUDA out of memory.", level="ERROR")],
[logged(TRACEBACK[0], level="ERROR"), logged(TRACEBACK[1].strip(), level="ERROR"), NOTE, OWN, logged('raise RuntimeError("CUDA error: an illegal memory access was encountered")', level="ERROR")],
        [NOTE, logged("a note", second=58), OWN, FAULT],
        [FAULT, NOTE, OWN, logged("more of it")],
        [NOTE, INFO, FAULT, INFO, OWN],
        ["============ Serving Benchmark Result ============", "Successful requests:   100", "Mean TTFT (ms):   5000.00", NOTE, OWN, "Mean TPOT (ms):  500.00"],
        [OOM, OWN, REST, NOTE],
        [f"(APIServer pid=1) {OOM}", NOTE, f"(APIServer pid=1) {REST}"],
        ["============ Serving Benchmark Result ============", "Successful requests:   100", NOTE, "Mean TTFT (ms):   5000.00", "Mean TPOT (ms):  500.00"],
        ["============ Serving Benchmark Result ============", "Successful requests:   100", "Mean TTFT (ms):   5000.00", NOTE, OWN, NOTE],
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [100, 65536])
def test_what_is_logged_next_to_lines_that_are_not_read_is_told_the_same(
    rows: list[str], size: int
) -> None:
    data = "\n".join([*LEARNT, *rows, OWN, OTHER, FAULT.replace("59", "11"), OWN]).encode()

    assert told(at_once(data, size)) == told(one_by_one(data))


def test_without_a_banner_records_are_read_for_the_release_they_tell() -> None:
    rows = LEARNT[1:]
    records = sum("x.py:7" in row for row in rows)

    assert read("\n".join(rows).encode()) > records
    assert read("\n".join(LEARNT).encode()) < records


def test_records_of_which_a_pattern_holds_the_words_are_read() -> None:
    """Else the test above could not fail: a rule asks for what comes often."""

    def log(text: str) -> bytes:
        head = HEAD.format("WARNING")
        rows = [
            f"{head.replace('05', f'{number:02}')}{text}\n(APIServer pid=1) {ACCESS}"
            for number in range(30)
        ]
        return "\n".join([BANNER, *rows]).encode()

    assert read(log("nothing to anybody")) < 15
    assert read(log("Chat template rejected the request: no")) > 30


class Counting(Scanner):
    calls = 0

    def _read(self, number: int, raw: bytes) -> None:
        self.calls += 1
        super()._read(number, raw)


def read(data: bytes) -> int:
    """How many lines are read one by one."""
    scanner = Counting("x.log", like=LIKE)
    scanner.feed_block(1, data)
    return scanner.calls


@pytest.mark.parametrize("wrap", WRAPS)
def test_most_of_the_traffic_is_not_read(wrap: str) -> None:
    rows = list(traffic(3, 8000, wrap=wrap, crash=False))
    assert read(b"".join(rows)[:-1]) < len(rows) * 0.6
