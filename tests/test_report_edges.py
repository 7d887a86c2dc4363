"""What reports show where there is much, little or something rare to show."""

import json
from collections.abc import Mapping
from enum import Enum

import pytest

from tests.conftest import FIXTURES
from tests.test_log_records import CONTEXT, decoded, plain, update
from vllm_triage import Report, Severity, triage
from vllm_triage.catalogue import Catalogue
from vllm_triage.kinds import Kind
from vllm_triage.model import Source
from vllm_triage.reports import FORMATS, ecs, explain, grid, kinds, otel, text

# A worker that was killed, with what its engine and an unknown exception printed besides.
SEVERAL = FIXTURES / "engine" / "0_32_0-worker-sigill.log"


@pytest.fixture(scope="module")
def several() -> Report:
    return triage(SEVERAL)


def test_all_shows_every_incident_in_full(several: Report) -> None:
    whole = text.render(several, width=80, every=True)
    short = text.render(several, width=80)

    assert len(several.incidents) == 3
    for incident in several.incidents:
        head = f"{incident.severity.value.upper()}  {incident.title}"[:40]
        assert whole.count(head) == 1
        assert (head in short) == (incident is several.incidents[0])
    # A line across the page before each but the first.
    assert [row for row in whole.split("\n") if row == "─" * 80] == ["─" * 80] * 2
    assert "--all" not in whole


def test_of_many_healthy_logs_three_are_named() -> None:
    sources = [
        Source(name=f"{name}.log", format="plain", lines=1, bytes=2, truncated_lines=0)
        for name in "abcde"
    ]
    found = triage(iter(["x"])).model_copy(update={"sources": sources})

    shown = " ".join(text.render(found).split())

    assert "No incident found in 5 lines of a.log, b.log, c.log and 2 more." in shown


@pytest.mark.parametrize(
    ("severity", "number", "level"),
    [
        (Severity.FATAL, 21, "fatal"),
        (Severity.DEGRADED, 17, "error"),
        (Severity.NOTICE, 13, "warn"),
    ],
)
def test_a_severity_has_its_level_in_both_standards(
    severity: Severity, number: int, level: str
) -> None:
    one = update(severity=severity)

    assert decoded(otel.line(one, CONTEXT))[0]["severityNumber"] == number
    assert json.loads(ecs.line(one, CONTEXT))["log"]["level"] == level


@pytest.mark.parametrize(
    "value", [1.5, 7, True, "x", ["a", 1], {"a": {"b": 2.5}, "c": ["d"]}, Severity.FATAL]
)
def test_any_value_of_a_fact_comes_back_as_it_was(value: object) -> None:
    found = plain(otel._value(value))

    assert found == (value.value if isinstance(value, Enum) else value)
    assert type(found) is type(value) or isinstance(value, (Enum, Mapping))


def test_a_time_beyond_all_calendars_is_left_out() -> None:
    one = update("9999999999999999999")

    assert "9999999999999999999" not in json.loads(ecs.line(one, CONTEXT))["@timestamp"]
    assert ecs._time(10**30) is None
    assert ecs._time(0) == "1970-01-01T00:00:00.000Z"


def test_a_table_too_wide_for_a_report_loses_its_last_columns() -> None:
    table = [["node", "driver", "torch"], ["a", "550.127.05", "2.9.0"]]

    assert grid.aligned(table, 80) == ["node  driver      torch", "a     550.127.05  2.9.0"]
    assert grid.aligned(table, 22) == ["node  driver", "a     550.127.05"]
    assert grid.aligned(table, 3) == ["node", "a"]
    assert grid.aligned([], 80) == []


def test_a_table_whose_words_fit_no_screen_becomes_blocks() -> None:
    rows = explain._table(["value", "0.6.3", "0.33"], [["x" * 40, "y" * 30, "z" * 30]])

    assert rows == [f"  {'x' * 40}", f"      0.6.3: {'y' * 30}", f"      0.33: {'z' * 30}"]
    narrow = explain._table(["value", "0.6.3"], [["x", "a word " * 20]])
    assert narrow[0].split() == ["value", "0.6.3"]
    assert max(map(len, narrow)) <= 80


def test_a_kind_without_verification_or_rule_leaves_no_gap(
    catalogue: Catalogue, several: Report
) -> None:
    name = Kind.OOM_LOAD
    bare = catalogue.rules[name].model_copy(update={"verify": None})
    alone = catalogue._replace(rules={name: bare})

    assert "Check:" in explain.explain(name.value, catalogue)
    assert "Check:" not in explain.explain(name.value, alone)
    assert name.value in kinds.kinds_page(alone)
    assert "oom.kv_cache" not in kinds.kinds_page(alone)
    root = several.incidents[0].model_copy(update={"verify": None})
    unverified = several.model_copy(update={"incidents": (root, *several.incidents[1:])})
    assert "**Verify.**" in FORMATS["markdown"](several)
    assert "**Verify.**" not in FORMATS["markdown"](unverified)
