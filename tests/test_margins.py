"""A log that was pasted, labelled or shipped with something before every line stays the same log."""

import json
from collections.abc import Callable

import pytest

from tests.conftest import FIXTURES
from vllm_triage import Report, triage
from vllm_triage.margins import Margin

LOGS = ["oom/kv-cache-too-small.log", "network/0_10_2-hub-offline-dns.log", "distributed/0_10_2-tp2-heads-not-divisible.log"]  # fmt: skip
WRAPS: dict[str, Callable[[int, str], str]] = {
    "quoted": lambda number, row: f"> {row}",
    "indented": lambda number, row: f"    {row}",
    "tab": lambda number, row: f"\t{row}",
    "cat -n": lambda number, row: f"{number:6d}\t{row}",
    "srun --label": lambda number, row: f"0: {row}",
    "mpirun": lambda number, row: f"[1,0]<stderr>:{row}",
    "tagged": lambda number, row: f"[vllm] {row}",
    "swarm": lambda number, row: f"llm_vllm.1.k3j5h2g4@node-{number % 3} | {row}",
    "epoch": lambda number, row: f"17{number:08d}.123 {row}",
    "asctime": lambda number, row: f"2026-09-08 10:11:{number % 60:02d},345 {row}",
    "time of day": lambda number, row: f"10:11:{number % 60:02d} {row}",
    "GitHub job": lambda number, row: (
        f"test\tRun server\t2026-09-08T10:11:12.345{number:04d}Z {row}"
    ),
    "JSON, level info": lambda number, row: json.dumps({"level": "info", "message": row}),
    "JSON array": lambda number, row: "[" * (number == 1) + json.dumps({"message": row}) + ",",
    "Elasticsearch": lambda number, row: json.dumps({"_id": number, "_source": {"message": row}}),
}


def rows_of(name: str) -> list[str]:
    return (FIXTURES / name).read_text("utf-8").splitlines()


def seen(report: Report) -> tuple[str | None, int | None]:
    root = report.root
    return (root.kind.value, root.evidence[0].line) if root else (None, None)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("wrap", WRAPS)
def test_what_stands_before_every_line_changes_nothing(name: str, wrap: str) -> None:
    rows = rows_of(name)
    wrapped = [WRAPS[wrap](number, row) for number, row in enumerate(rows, 1)]

    assert seen(triage(iter(wrapped))) == seen(triage(iter(rows)))


def test_a_log_without_margin_has_none_to_learn() -> None:
    margin = Margin()
    margin.without("INFO 05-01 10:00:00 [x.py:1] start")

    assert margin.without("  INFO 05-01 10:00:00 [x.py:1] quoted") == "  INFO 05-01 10:00:00 [x.py:1] quoted"  # fmt: skip
    assert margin.without("    indented") == "    indented"


def test_indentation_inside_the_margin_stays() -> None:
    margin = Margin()

    assert margin.without("12> INFO 05-01 10:00:00 [x.py:1] a") == "INFO 05-01 10:00:00 [x.py:1] a"
    assert margin.without('13>   File "a.py", line 1, in f') == '  File "a.py", line 1, in f'
    assert margin.without("no margin here") == "no margin here"
