"""What is bounded, and what is left as it is where an input is odd."""

from math import inf
from pathlib import Path

import pytest

from tests.test_artefact_gpus import gpus
from tests.test_metrics import metrics, rows, update
from tests.test_watch import BANNER, OOM, QUIET, READY, Told, add
from vllm_triage import rule_cache, system
from vllm_triage.arguments import printed_arguments
from vllm_triage.artefacts.histograms import Histogram
from vllm_triage.conditions import satisfies
from vllm_triage.echo_reader import EchoReader
from vllm_triage.envelopes import Unwrapper
from vllm_triage.events import record
from vllm_triage.kinds import Level
from vllm_triage.lines import parse
from vllm_triage.processes import MAX_FRAMES, Process
from vllm_triage.rule_cache import OFF_VARIABLE
from vllm_triage.run import Run
from vllm_triage.tracebacks import Frame, exception_name


def test_metrics_remember_the_incidents_told_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_triage.metrics._MAX_INCIDENTS", 1)
    path = tmp_path / "vllm.prom"
    file = metrics(path)
    one, other = update(), update().model_copy(update={"id": "oom.load:a.log:9"})
    for told in (one, other, other, one):
        file(told)

    # The one that was forgotten is counted again, the other one is not.
    assert rows(path)[1].endswith(" 3")


def test_of_very_many_frames_the_last_is_kept() -> None:
    process = Process()
    for number in range(MAX_FRAMES + 5):
        process.add_frame(Frame("a.py", number, "f"))

    assert len(process.frames) == MAX_FRAMES
    assert process.frames[0].line == 0
    assert process.frames[-1].line == MAX_FRAMES + 4


def test_a_warning_s_class_makes_a_record_a_warning() -> None:
    (line,) = parse("x", 1, "FutureWarning: this will go")

    assert record([line]).level is Level.WARNING
    assert record([*parse("x", 1, "ValueError: this went")]).level is not Level.WARNING


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("RuntimeError('x')", "RuntimeError"),
        ('vllm.errors.DeadError("x y")', "vllm.errors.DeadError"),
        ("print('x')", None),
        ("RuntimeError('x", None),
    ],
)
def test_an_exception_as_a_logger_prints_it_is_known_by_its_class(
    text: str, name: str | None
) -> None:
    found = exception_name(text, in_traceback=False)

    assert (found or "").rpartition(".")[2] == (name or "").rpartition(".")[2]


def test_an_argument_that_a_pattern_needs_is_looked_for_under_its_name() -> None:
    run = Run("x.log", 1)
    run.arguments = {"download_dir": "/models", "seed": 0}

    assert satisfies(("download-dir",), run, None)
    assert not satisfies(("download-dir", "tokenizer"), run, None)
    assert satisfies(("download-dir", "quantization"), run, "awq")


def test_printed_arguments_that_are_no_dict_are_none() -> None:
    assert printed_arguments("{'model': 'a'}") == {"model": "a"}
    assert printed_arguments("['model', 'a']") == {}


def test_a_flag_and_its_value_in_one_word_of_a_manifest_are_two() -> None:
    echo = EchoReader().feed('args: ["--model", "org/name", "--max-model-len 4096", "--port=1"]')

    assert echo is not None
    assert echo.model == "org/name"
    assert {**echo.flags(), "model": ""} == {"model": "", "max_model_len": 4096, "port": 1}


def test_a_histogram_that_began_anew_is_no_later_state() -> None:
    before = Histogram(10, 5.0, ((0.5, 4), (inf, 10)))
    later = Histogram(12, 8.0, ((0.5, 5), (inf, 12)))

    assert later.since(before) == Histogram(2, 3.0, ((0.5, 1), (inf, 2)))
    assert before.since(later) is None
    assert Histogram(12, 8.0, ((0.5, 3), (inf, 12))).since(before) is None


@pytest.mark.parametrize("wrapper", ["jsonPayload", "record", "data"])
def test_a_message_in_an_object_of_a_record_is_what_was_printed(wrapper: str) -> None:
    row = f'{{"time":"2026-05-01T10:00:40Z","{wrapper}":{{"message":"ERROR a"}}}}'

    assert [item.text for item in Unwrapper().feed(1, row)] == ["ERROR a"]


def test_samples_with_their_date_and_time_before_them_are_read() -> None:
    head = "#Date       Time        gpu   sm   mem    fb\n#YYYYMMDD   HH:MM:SS    Idx    %     %    MB\n"

    (one,) = gpus(head + " 20251104   09:12:31      3   10     1   100\n 20251104   09:12:32      3   30     1   200\n")  # fmt: skip

    assert (one["gpu_index"], one["gpu_utilization_pct"], one["gpu_samples"]) == (3, 20.0, 2)


def test_a_home_that_is_no_absolute_path_keeps_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OFF_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "here")
    assert rule_cache.folder() is None
    monkeypatch.setenv("HOME", "/home/a")

    assert rule_cache.folder() == Path("/home/a/.cache/vllm-triage")


def test_what_a_machine_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> object:
        raise OSError(2, "No such file or directory")

    assert "GiB" in system._memory()
    monkeypatch.setattr("vllm_triage.system.platform.freedesktop_os_release", missing)
    monkeypatch.setattr("vllm_triage.system.os.sysconf", missing)
    monkeypatch.setattr("vllm_triage.system.shutil.disk_usage", missing)

    assert system._os_name()
    assert (system._memory(), system._shared_memory()) == ("", "")


def test_a_container_that_got_ready_closes_nothing_of_another(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.touch()
    told = Told(path)

    def said(container: str, text: str) -> None:
        add(path, "".join(f"{container}-1  | {row}\n" for row in text.splitlines()))

    said("a", BANNER + OOM + QUIET)
    (first,) = told.run()
    said("b", BANNER + READY)
    said("b", BANNER + READY)
    for minute in range(2, 6):
        said("a", (OOM + QUIET).replace("05:01", f"05:0{minute}"))
    more = told.run()

    assert {one.id for one in more} == {first.id}
    assert more[-1].count == 5
