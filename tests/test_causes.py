"""Which of the things that a log shows is the root cause."""

from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from vllm_triage import Kind, Scanner, Severity, triage

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.56 GiB of which 1.00 GiB is free."
TIMEOUT = "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600059 milliseconds before timing out."
DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
READY = "INFO:     Application startup complete."
ANSWER = 'INFO:     10.0.0.5:1234 - "POST /v1/completions HTTP/1.1" 200 OK'


def root(*rows: str) -> Kind | None:
    report = triage(iter(rows))
    return report.root.kind if report.root else None


def test_a_cause_explains_a_time_out_printed_before_it() -> None:
    assert (
        root(TIMEOUT, "RuntimeError: CUDA error: an illegal memory access was encountered")
        is Kind.GPU_CUDA_ERROR
    )


def test_a_consequence_alone_is_what_is_reported() -> None:
    report = triage(iter([DEAD]))

    assert report.root is not None
    assert report.root.kind is Kind.ENGINE_DEAD
    assert report.root.collect


def test_nccls_last_error_decides() -> None:
    rows = ["torch.distributed.DistBackendError: NCCL error in: x.cpp:77, unhandled cuda error, NCCL version 2.26.2",
            "ncclUnhandledCudaError: Call to CUDA function failed.", "Last error:"]  # fmt: skip

    assert root(*rows, "Cuda failure 2 'out of memory'") is Kind.OOM_LOAD
    assert root(*rows, "Cuda failure 999 'unknown error'") is Kind.DISTRIBUTED_NCCL_CUDA_ERROR


def test_rays_guesses_are_no_proof_of_an_oom_kill() -> None:
    guess = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage."

    assert root(guess) is Kind.DISTRIBUTED_RAY
    assert (
        root(guess, "[1.2] Out of memory: Killed process 42 (ray::IDLE) total-vm:1kB")
        is Kind.OOM_HOST
    )


def test_the_phase_tells_the_kinds_of_gpu_oom() -> None:
    assert root(OOM) is Kind.OOM_LOAD
    assert root(READY, ANSWER, OOM, DEAD) is Kind.OOM_INFERENCE


def test_a_server_that_answers_afterwards_did_not_die() -> None:
    report = triage(iter([READY, ANSWER, "", "Traceback (most recent call last):", '  File "/x/site-packages/vllm/a.py", line 1, in execute_model', "    x", OOM, ANSWER, ANSWER]))  # fmt: skip

    assert report.root is not None
    assert report.root.severity is Severity.DEGRADED


def test_errors_while_shutting_down_on_purpose_are_no_incident() -> None:
    assert root(READY, ANSWER, "INFO:     Shutting down", DEAD) is None


def test_several_files_are_one_deployment(tmp_path: Path) -> None:
    (tmp_path / "node0.log").write_text(f"2026-05-01 10:10:00 {TIMEOUT}\n")
    (tmp_path / "node1.log").write_text(
        "ERROR 05-01 10:00:00 [x.py:1] RuntimeError: CUDA error: misaligned address\n"
    )

    report = triage([tmp_path / "node0.log", tmp_path / "node1.log"])

    assert report.root is not None
    assert report.root.kind is Kind.GPU_CUDA_ERROR
    assert report.root.evidence[0].source.endswith("node1.log")
    assert report.incidents[1].caused_by == report.root.id


def test_the_scanner_tells_an_incident_once_and_agrees_with_triage() -> None:
    rows = [OOM, "", DEAD, "", OOM]
    scanner = Scanner("x")
    told = [incident.kind for row in rows for incident in scanner.feed(row)]
    told += [incident.kind for incident in scanner.close()]

    assert sorted(told) == sorted(set(told))
    assert scanner.report().root_cause is not None
    assert {incident.kind for incident in scanner.report().incidents} == set(told)


@pytest.mark.parametrize(
    "exception", ["KeyboardInterrupt", "SystemExit: 0", "asyncio.exceptions.CancelledError"]
)
def test_an_orderly_end_is_no_incident(exception: str) -> None:
    assert (
        root(
            "Traceback (most recent call last):", '  File "a.py", line 1, in f', "    x", exception
        )
        is None
    )


def test_an_unknown_exception_is_said_to_be_unknown() -> None:
    report = triage(iter(["Traceback (most recent call last):", '  File "/x/site-packages/vllm/v1/a.py", line 7, in f', "    x", "FooError: bar"]))  # fmt: skip

    assert report.root is not None
    facts = report.root.facts.model_dump(exclude_none=True)
    assert report.root.kind is Kind.ENGINE_UNRECOGNISED
    assert (facts["exception"], facts["last_frame"]) == ("FooError", "vllm/v1/a.py:7 in f")


def test_a_model_name_that_a_shell_would_run_never_enters_a_command() -> None:
    report = triage(
        iter(["ValueError: Invalid repository ID or local directory specified: 'x; rm -rf /'."])
    )

    assert report.root is not None
    assert not [step for step in report.root.fix_steps if "rm -rf" in (step.command or "")]


def test_very_many_unknown_exceptions_give_a_bounded_report() -> None:
    rows = [f"Traceback (most recent call last):\n  File 'a.py', line 1, in f\nodd.E{number}Error: x" for number in range(500)]  # fmt: skip
    report = triage(iter("\n\n".join(rows).splitlines()))

    assert 2 <= len(report.incidents) <= 40
    assert sum(incident.count for incident in report.incidents) == 500


def test_a_crash_loop_of_many_runs_folds_into_one_incident() -> None:
    banner = "INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.2"
    report = triage(iter([banner, OOM, ""] * 200))

    assert report.root is not None
    assert report.root.kind is Kind.OOM_LOAD
    assert report.root.count == 200


def test_a_report_in_between_changes_nothing() -> None:
    scanner = Scanner("x")
    for row in [OOM, "", DEAD, ""]:
        list(scanner.feed(row))
    before = scanner.report()

    assert scanner.report() == before
    list(scanner.close())
    assert scanner.report().root_cause == before.root_cause


def test_the_engines_own_unknown_exception_is_why_it_died() -> None:
    head = "(EngineCore_0 pid=7) ERROR 05-01 10:00:00 [core.py:1] "
    report = triage(iter([
        "INFO:     Application startup complete.",
        head + "EngineCore encountered a fatal error.",
        head + "Traceback (most recent call last):",
        head + '  File "/x/site-packages/vllm/v1/engine/core.py", line 9, in run_busy_loop',
        head + "    self.step()",
        head + "AssertionError",
        DEAD,
    ]))  # fmt: skip

    assert report.root is not None
    assert report.root.kind is Kind.ENGINE_UNRECOGNISED
    assert report.root.severity is Severity.FATAL


def test_what_a_client_sent_is_no_evidence() -> None:
    row = "ERROR 05-01 10:00:00 [serving_chat.py:200] ValueError: unknown role in message {'content': 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'}"
    report = triage(iter(["INFO:     Application startup complete.", row]))

    assert all(incident.kind.area != "oom" for incident in report.incidents)


def test_a_warning_of_the_hub_that_a_started_server_went_past_is_nothing() -> None:
    report = triage(iter([
        "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\"))' thrown while requesting HEAD https://huggingface.co/a/b/resolve/main/config.json",
        "Retrying in 1s [Retry 1/5].",
        "INFO:     Application startup complete.",
    ]))  # fmt: skip

    assert report.incidents == ()


def test_a_message_that_a_terminal_wrapped_is_one() -> None:
    report = triage(iter([
        "ValueError: No available memory",
        "for the cache blocks. Try increasing `gpu_memory_utilization`.",
    ]))  # fmt: skip

    assert report.root is not None
    assert report.root.kind is Kind.OOM_KV_CACHE


def test_what_is_graver_of_one_kind_speaks_for_it_whichever_was_said_first() -> None:
    warned = "UserWarning: Not enough free disk space to download the file. The expected file size is: 4976.70 MB. The target location /root/.cache/huggingface/hub/models--x/blobs only has 1203.33 MB free disk space."
    failed = "OSError: [Errno 28] No space left on device"

    for rows in ([warned, failed], [failed, warned]):
        report = triage(iter(rows))

        assert report.root is not None
        assert report.root.kind is Kind.HOST_DISK_FULL
        assert report.root.severity is Severity.FATAL
        assert report.root.evidence[0].text == failed


CHAIN = """Traceback (most recent call last):
  File "/app/first.py", line 1, in one
    one()
app.errors.FirstError: what happened

{}

Traceback (most recent call last):
  File "/app/second.py", line 2, in two
    two()
app.errors.SecondError: what was made of it
"""


@pytest.mark.parametrize(
    ("between", "name"),
    [
        ("The above exception was the direct cause of the following exception:", "FirstError"),
        ("During handling of the above exception, another exception occurred:", "SecondError"),
    ],
)
def test_of_exceptions_that_no_rule_knows_the_cause_or_the_last_raised_counts(
    between: str, name: str
) -> None:
    prefix = "(EngineCore pid=9) ERROR 12-01 05:01:00 [core.py:700] "
    rows = [prefix + row for row in CHAIN.format(between).split("\n")]
    report = triage(iter([*rows, prefix.replace("EngineCore pid=9", "APIServer pid=8") + DEAD]))
    (unknown,) = [one for one in report.incidents if one.kind is Kind.ENGINE_UNRECOGNISED]

    assert str(getattr(unknown.facts, "exception", "")).endswith(name)


PEER_IS_GONE = """\
[rank1]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.27.3
[rank1]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
"""
NO_RENDEZVOUS = """\
torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 29500).
"""


@pytest.mark.parametrize("peer", [PEER_IS_GONE, NO_RENDEZVOUS])
@pytest.mark.parametrize(
    "name",
    [
        "loading/0_10_2-unsupported-arch.log",
        "loading/0_32_0-weights-missing-shard.log",
        "quantization/0_32_0-quant-unknown-config.log",
        "config/report-load-092.log",
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_broke_one_node_explains_that_its_peers_lost_it(
    tmp_path: Path, name: str, peer: str, *, is_first: bool
) -> None:
    log = FIXTURES / name
    other = tmp_path / "peer.log"
    other.write_text(peer)
    alone, of_peer = triage(log).root, triage(other).root
    assert alone is not None
    assert of_peer is not None
    assert of_peer.area == "distributed"

    root = triage([log, other] if is_first else [other, log]).root

    assert root is not None
    assert root.kind is alone.kind


LEFT_THE_LOOP = """(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO:     10.0.0.8:42562 - "POST /v1/chat/completions HTTP/1.1" 200 OK
(EngineCore_DP0 pid=77) ERROR 05-03 17:38:30 [core.py:710] Traceback (most recent call last):
(EngineCore_DP0 pid=77) ERROR 05-03 17:38:30 [core.py:710]   File "/x/site-packages/vllm/v1/engine/core.py", line 728, in run_busy_loop
(EngineCore_DP0 pid=77) ERROR 05-03 17:38:30 [core.py:710]     self._process_engine_step()
(EngineCore_DP0 pid=77) ERROR 05-03 17:38:30 [core.py:710] ZeroDivisionError: division by zero
"""


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        (LEFT_THE_LOOP, Severity.FATAL),
        (LEFT_THE_LOOP.replace("run_busy_loop", "add_request"), Severity.DEGRADED),
    ],
)
def test_an_unknown_exception_that_left_the_engines_loop_ended_it(
    text: str, severity: Severity
) -> None:
    root = triage(iter(text.splitlines())).root

    assert root is not None
    assert (root.kind, root.severity) == (Kind.ENGINE_UNRECOGNISED, severity)
