"""Lines and events: prefixes cut, tracebacks assembled per process."""

import pytest

from vllm_triage import triage
from vllm_triage.assembler import Assembler
from vllm_triage.events import Event
from vllm_triage.kinds import Level
from vllm_triage.lines import Origin, parse


def events(*rows: str) -> list[Event]:
    assembler = Assembler()
    out: list[Event] = []
    for number, row in enumerate(rows, 1):
        for line in parse("x.log", number, row):
            out += assembler.feed(line)
    return [*out, *assembler.close()]


@pytest.mark.parametrize(
    ("text", "process", "level", "message"),
    [
        ("INFO 06-12 09:15:01 llm_engine.py:161] Initializing", None, Level.INFO, "Initializing"),
        ("INFO 05-02 10:00:00 [core.py:58] Initializing", None, Level.INFO, "Initializing"),
        ("(VllmWorkerProcess pid=9) ERROR 05-02 10:00:00 x.py:1]   File", "VllmWorkerProcess", Level.ERROR, "  File"),
        ("(VllmWorker rank=3 pid=9) ERROR 05-02 10:00:00 [x.py:1] a", "VllmWorker_3", Level.ERROR, "a"),
        ("(VllmWorker TP0 pid=9) WARNING 05-02 10:00:00 [x.py:1] a", "VllmWorker_TP0", Level.WARNING, "a"),
        ("(Worker_DP0_PP0_TP1_EP1 pid=9) ERROR 05-02 10:00:00 [v1/engine/x.py:1] a", "Worker_DP0_PP0_TP1_EP1", Level.ERROR, "a"),
        ("(APIServer pid=1) (EngineCore_DP0 pid=511) ERROR 02-10 18:46:44 [core.py:936] a", "EngineCore_DP0", Level.ERROR, "a"),
        ("(RayWorkerWrapper pid=4567, ip=10.0.0.12) a", "RayWorkerWrapper", None, "a"),
        ("ERROR:    Exception in ASGI application", None, Level.ERROR, "Exception in ASGI application"),
        ("[rank0]:[E ProcessGroupNCCL.cpp:563] a", None, Level.ERROR, "a"),
        ("node:45259:45293 [2] NCCL INFO init.cc:1010 -> 1", None, Level.INFO, "NCCL INFO init.cc:1010 -> 1"),
        ("2024-05-13 17:48:59,479\tINFO worker.py:1564 -- Connecting", None, Level.INFO, "Connecting"),
        ("2025-03-14 12:24:52.426 | ERROR    | a.b:c:564 - text", None, Level.ERROR, "text"),
    ],
)  # fmt: skip
def test_prefixes_are_cut(
    text: str, process: str | None, level: Level | None, message: str
) -> None:
    line = parse("x.log", 1, text)[0]

    assert (line.process, line.level, line.text) == (process, level, message)


def test_a_record_glued_to_a_progress_bar_is_a_line_of_its_own() -> None:
    lines = parse(
        "x",
        1,
        "Capturing:  89%|███▊ | 47/53 [00:01<00:00, 40.05it/s]ERROR 09-11 17:35:22 [x.py:1] boom",
    )

    assert [line.text for line in lines][1:] == ["boom"]


def test_what_ray_adds_to_a_line_that_stands_for_several_is_no_part_of_it() -> None:
    worker = "(RayWorkerWrapper pid=12, ip=10.0.0.9) ERROR 05-02 10:00:00 [worker_base.py:620] "
    often = " [repeated 5x across cluster]"
    more = f"{often} (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable log deduplication.)"
    [event] = events(
        f"{worker}Traceback (most recent call last):{more}",
        f'{worker}  File "/x/site-packages/vllm/model_executor/models/opt.py", line 70, in load_weights{often}',
        f"{worker}    param = params_dict[name]{often}",
        f"{worker}KeyError: 'decoder.layers.3.bias'{often}",
    )
    assert event.text == "KeyError: 'decoder.layers.3.bias'"
    assert [frame.function for frame in event.frames] == ["load_weights"]


def test_access_and_request_lines_are_told_apart() -> None:
    access = parse(
        "x", 1, 'INFO:     1.2.3.4:5 - "POST /v1/completions HTTP/1.1" 400 Bad Request'
    )[0]
    request = parse(
        "x",
        1,
        "INFO 04-12 07:27:46 [logger.py:39] Received request a: prompt: 'CUDA out of memory'",
    )[0]

    assert access.origin is Origin.ACCESS
    assert request.origin is Origin.REQUEST


def test_interleaved_tracebacks_come_apart() -> None:
    rows = []
    for text in (
        "Traceback (most recent call last):",
        '  File "/s/site-packages/vllm/a.py", line 3, in run',
        "    go()",
    ):
        rows += [f"(W pid=1) {text}", f"(W pid=2) {text}"]
    rows += ["(W pid=1) ValueError: one", "(W pid=2) KeyError: 'two'"]

    found = [event for event in events(*rows) if event.exception]

    assert [(event.exception, event.first.pid, len(event.frames)) for event in found] == [
        ("ValueError", 1, 1),
        ("KeyError", 2, 1),
    ]
    assert found[0].frames[0] == ("vllm/a.py", 3, "run")


def test_a_chain_keeps_its_order_and_links() -> None:
    found = events(
        "Traceback (most recent call last):", '  File "a.py", line 1, in f', "    x", "KeyError: 'a'", "",
        "The above exception was the direct cause of the following exception:", "",
        "Traceback (most recent call last):", '  File "b.py", line 1, in g', "    y", "OSError: b",
    )  # fmt: skip

    assert [(event.exception, event.link) for event in found] == [
        ("KeyError", None),
        ("OSError", "cause"),
    ]
    assert found[0].chain == found[1].chain


def test_marks_and_folded_arguments_of_python_313_are_no_messages() -> None:
    found = events(
        "Traceback (most recent call last):", '  File "a.py", line 1, in f', "    wait(", "    ~~~~^",
        "        socket,", "    ...<5 lines>...", "    )", "    ^", "RuntimeError: boom",
    )  # fmt: skip

    assert [event.text for event in found] == ["RuntimeError: boom"]


def test_a_cut_traceback_still_tells_what_was_raised() -> None:
    found = events(
        '  File "/s/site-packages/vllm/kv.py", line 699, in check',
        '    raise ValueError("No available memory "',
        '                     "for the cache blocks.")',
    )

    assert found[0].text == "ValueError: No available memory for the cache blocks."
    assert found[0].first.number == 2
    assert found[0].restored


def test_lines_that_continue_a_message_stay_with_it() -> None:
    found = events(
        "torch.distributed.DistBackendError: NCCL error, unhandled cuda error",
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        "Last error:",
        "Cuda failure 2 'out of memory'",
        "Killed",
    )

    assert [len(event.lines) for event in found] == [4, 1]


def test_an_exception_ignored_in_a_destructor_is_no_error() -> None:
    found = events(
        "Exception ignored in: <function X.__del__ at 0x7f>", "Traceback (most recent call last):",
        '  File "a.py", line 1, in __del__', "    x", "ValueError: late",
    )  # fmt: skip

    assert [event.level for event in found if event.exception] == [Level.DEBUG]


def test_a_whole_failure_in_one_string_is_split_unless_it_is_a_prompt() -> None:
    escaped = (
        'Traceback (most recent call last):\\n  File \\"a.py\\", line 1, in f\\nValueError: x'
    )

    assert [event.exception for event in events(f"ERROR: {escaped}")][-1] == "ValueError"
    assert (
        events(f"INFO 04-12 07:27:46 [logger.py:39] Received request a: prompt: '{escaped}'") == []
    )


def test_the_parts_of_an_exception_group_are_the_exceptions() -> None:
    found = events(
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "/x/site-packages/vllm/a.py", line 1, in f',
        "  |     run()",
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "/x/site-packages/vllm/b.py", line 2, in g',
        "    |     work()",
        "    | ZeroDivisionError: division by zero",
        "    +------------------------------------",
    )

    assert [event.exception for event in found if event.exception] == ["ExceptionGroup", "ZeroDivisionError"]  # fmt: skip
    assert found[-1].frames == (("vllm/b.py", 2, "g"),)


def test_an_exception_printed_as_a_repr_is_one() -> None:
    found = events("ERROR 05-01 10:00:00 [engine.py:135] RuntimeError('shape mismatch: a vs b')")

    assert found[0].exception == "RuntimeError"


PIP = """  error: subprocess-exited-with-error
  ╰─> [4 lines of output]
      Traceback (most recent call last):
        File "<string>", line 34, in <module>
      ModuleNotFoundError: No module named 'torch'
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
"""


def test_an_indented_traceback_ends_with_its_own_exception_and_not_with_a_note() -> None:
    report = triage(iter(PIP.splitlines()))

    assert [incident.kind for incident in report.incidents] == ["loading.missing_dependency"]
    assert [one.line for one in report.incidents[0].evidence] == [5]
