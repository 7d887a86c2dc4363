"""Lines that are not read one by one: what is told is the same as if they had been."""

import random
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.traffic import FIXTURES, WRAPS, traffic
from vllm_triage import Scanner
from vllm_triage.sources import BLANK, Splitter, decoded

LIKE = Scanner()
LOGS = sorted(path for path in FIXTURES.rglob("*.log"))


def one_by_one(data: bytes) -> Scanner:
    scanner = Scanner("x.log", like=LIKE)
    before = b"-"
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), 1):
        if line not in BLANK or before not in BLANK:
            scanner.feed_numbered(number, decoded(line))
        before = line
    scanner.end_source()
    return scanner


def at_once(data: bytes, size: int) -> Scanner:
    scanner = Scanner("x.log", like=LIKE)
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


def told(scanner: Scanner) -> object:
    report = scanner.report()
    runs = [
        {
            name: value
            for name, value in asdict(run).items()
            if name not in ("release", "memory", "echoes")
        }
        for run in scanner._runs.all
    ]
    return (
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


class Counting(Scanner):
    calls = 0

    def feed_numbered(self, number: int, text: str) -> None:
        self.calls += 1
        super().feed_numbered(number, text)


@pytest.mark.parametrize("wrap", WRAPS)
def test_most_of_the_traffic_is_not_read(wrap: str) -> None:
    rows = list(traffic(3, 4000, wrap=wrap, crash=False))
    scanner = Counting("x.log", like=LIKE)

    scanner.feed_block(1, b"".join(rows)[:-1])

    assert scanner.calls < len(rows) * 0.6
