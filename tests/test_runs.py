"""Lines that are said to tell nothing of a run tell nothing of it."""

from tests.traffic import FIXTURES
from vllm_triage.lines import Origin, parse
from vllm_triage.run import Run
from vllm_triage.runs import Runs, is_idle_talk

BANNER = "(APIServer pid=1) INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.10.2"
PASSING = {
    "first_seen",
    "last_seen",
    "lines",
    "release",
    "memory",
    "echoes",
    "platform",
    "meeting",
}


def facts(run: Run) -> dict[str, object]:
    known = {name: repr(value) for name, value in vars(run).items()}
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


def said(runs: Runs, number: int, text: str, container: str | None = None) -> Run:
    (line,) = parse("x", number, text)
    return runs.feed(line._replace(container=container))


def test_all_arguments_after_those_of_a_command_without_a_banner_begin_a_run() -> None:
    runs = Runs()
    first = said(runs, 1, "INFO 01-02 03:04:05 utils.py:1] non-default args: {'model': 'a'}")
    second = said(
        runs, 2, "INFO 01-02 03:05:05 api_server.py:1] args: Namespace(model='b', seed=1)"
    )
    third = said(runs, 3, "INFO 01-02 03:05:06 api_server.py:2] something else")

    assert first.arguments == {"model": "a"}
    assert second is not first
    assert (second.arguments["model"], third.index) == ("b", second.index)


def test_of_very_many_containers_the_ones_that_spoke_longest_ago_are_forgotten() -> None:
    runs = Runs(limit=20)
    for number in range(30):
        said(runs, number + 1, BANNER, f"c{number}")
    assert len(runs.all) == 20

    # Of so many any line may tell a release.
    assert runs.may_learn_release("x")
    again = said(runs, 31, "INFO 01-02 03:04:05 [x.py:1] a", "c29")
    anew = said(runs, 32, "INFO 01-02 03:04:05 [x.py:1] a", "c0")
    assert again.release.version == "0.10.2"
    assert anew.release.version is None


def test_the_devices_that_a_process_may_see_are_counted() -> None:
    runs = Runs()
    run = said(runs, 1, "CUDA_VISIBLE_DEVICES=0,2,3")

    assert run.visible_gpus == 3
