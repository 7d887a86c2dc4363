"""Lines that are said to tell nothing of a run tell nothing of it."""

from dataclasses import fields

from tests.traffic import FIXTURES
from vllm_triage.lines import Origin, parse
from vllm_triage.run import Run
from vllm_triage.runs import Runs, is_idle_talk

BANNER = "(APIServer pid=1) INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.10.2"
PASSING = {"first_seen", "last_seen", "lines", "release", "memory", "echoes"}


def facts(run: Run) -> dict[str, object]:
    known = {one.name: repr(getattr(run, one.name)) for one in fields(run)}
    return {name: value for name, value in known.items() if name not in PASSING} | {
        "release": run.release.version,
        "memory": repr(vars(run.memory)),
        "index": run.index,
    }


def test_records_that_are_idle_talk_change_nothing_but_the_time() -> None:
    runs = Runs()
    (banner,) = parse("x", 1, BANNER)
    before = facts(runs.feed(banner))
    idle = telling = 0
    for path in sorted(FIXTURES.rglob("*.log")):
        for text in path.read_text("utf-8", "replace").splitlines():
            for line in parse("x", 2, text):
                if line.place is None or line.level is None or line.origin is not Origin.LOG:
                    continue
                if is_idle_talk(line.text):
                    assert facts(runs.feed(line)) == before, text
                    idle += 1
                else:
                    telling += 1

    assert idle > 1000
    assert telling > 100
