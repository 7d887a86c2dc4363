"""A log that was pasted, labelled or shipped with something before every line stays the same log."""

import json
from collections.abc import Callable

import pytest

from tests.conftest import FIXTURES
from vllm_triage import Report, triage
from vllm_triage.envelopes import Unwrapper
from vllm_triage.margins import Margin

LOGS = ["oom/kv-cache-too-small.log", "healthy/prompt-quotes-a-cuda-traceback.log", "oom/report-oom-047.log", "loading/report-load-071.log", "network/0_10_2-hub-offline-dns.log", "distributed/0_10_2-tp2-heads-not-divisible.log"]  # fmt: skip
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
    "GitLab job": lambda number, row: f"2026-09-08T10:11:12.345{number:03d}Z 01O {row}",
    "Jenkins": lambda number, row: f"[2026-09-08T10:11:{number % 60:02d}.345Z] {row}",
    "Airflow": lambda number, row: (
        f"[2026-09-08T10:11:{number % 60:02d}.345+0000] {{process_utils.py:190}} INFO - {row}"
    ),
    "launcher's logger": lambda number, row: (
        f"2026-09-08 10:11:{number % 60:02d},345 - launcher - INFO - {row}"
    ),
    "container id": lambda number, row: f"0123456789ab {row}",
    "SkyPilot": lambda number, row: f"(head, rank=0, pid=4711) {row}",
    "lost escapes": lambda number, row: f"[1;36m{row}[0;0m",
    "typographic quotes": lambda number, row: (
        row.replace(" '", " \u2018")
        .replace("'", "\u2019")
        .replace(' "', " \u201c")
        .replace('"', "\u201d")
    ),
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


def test_a_margin_comes_off_once() -> None:
    unwrapper = Unwrapper()
    rows = ["01O INFO 05-01 10:00:00 [x.py:1] a", "01O 02 b"]

    assert [item.text for n, row in enumerate(rows) for item in unwrapper.feed(n, row)] == [
        "INFO 05-01 10:00:00 [x.py:1] a",
        "02 b",
    ]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_healthy_log_cut_to_a_terminals_width_is_healthy(width: int) -> None:
    rows = rows_of("healthy/0_32_0-attention-backend-unknown.log")
    cut = [row[start : start + width] for row in rows for start in range(0, len(row), width)]

    assert seen(triage(iter(cut))) == (None, None)
