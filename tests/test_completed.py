"""Completed commands: no step loses what the user's own server was started with."""

import pytest

from tests.conftest import FIXTURES
from vllm_triage import triage
from vllm_triage.completed import completed, difference
from vllm_triage.echoes import parse
from vllm_triage.reports.text import render
from vllm_triage.run import Run

SERVE = "vllm serve org/name --tensor-parallel-size 4 --max-model-len 8192"
DOCKER = "docker run --gpus all -v /data:/data vllm/vllm-openai:v0.10.2 --model org/name --tensor-parallel-size 4"


def run_of(command: str | None) -> Run:
    run = Run("pod.log", 1)
    run.model = "org/name"
    if command is not None:
        run.echo = parse(f"$ {command}")
        assert run.echo is not None
        run.arguments.update(run.echo.flags())
    return run


@pytest.mark.parametrize(
    ("own", "step", "expected"),
    [
        (SERVE, "vllm serve org/name --max-num-seqs 64", SERVE + " --max-num-seqs 64"),
        (SERVE, "vllm serve org/name --max-model-len 4096", SERVE.replace("8192", "4096")),
        (SERVE, "NCCL_DEBUG=INFO vllm serve org/name 2>&1 | grep 'NCCL WARN'", f"NCCL_DEBUG=INFO {SERVE} 2>&1 | grep 'NCCL WARN'"),
        (SERVE, "env LD_LIBRARY_PATH= vllm serve org/name", f"env LD_LIBRARY_PATH= {SERVE}"),
        (SERVE, "hf auth login && vllm serve org/name", f"hf auth login && {SERVE}"),
        (SERVE, "hf download org/name --local-dir ./model && vllm serve ./model", "hf download org/name --local-dir ./model && " + SERVE.replace("org/name", "./model")),
        (SERVE, "docker run --gpus all --ipc=host vllm/vllm-openai --model org/name", "docker run --gpus all --ipc=host vllm/vllm-openai --model org/name --tensor-parallel-size 4 --max-model-len 8192"),
        (DOCKER, "vllm serve org/name --max-num-seqs 64", DOCKER + " --max-num-seqs 64"),
        (DOCKER, "VLLM_LOGGING_LEVEL=DEBUG vllm serve org/name 2>&1 | tee vllm.log", DOCKER.replace("run ", "run -e VLLM_LOGGING_LEVEL=DEBUG ", 1) + " 2>&1 | tee vllm.log"),
        ("VLLM_LOGGING_LEVEL=INFO " + SERVE, "VLLM_LOGGING_LEVEL=DEBUG vllm serve org/name", "VLLM_LOGGING_LEVEL=DEBUG " + SERVE),
        (SERVE, """vllm serve org/name --speculative-config '{"method": "ngram"}'""", SERVE + """ --speculative-config '{"method": "ngram"}'"""),
    ],
)  # fmt: skip
def test_a_step_has_all_of_the_users_command(own: str, step: str, expected: str) -> None:
    assert completed(step, run_of(own), {}) == expected


def test_a_flag_that_a_step_removes_is_not_there() -> None:
    run = run_of(SERVE + " --enforce-eager")

    assert completed("vllm serve org/name", run, {"--enforce-eager": "-"}) == SERVE


@pytest.mark.parametrize(
    "step",
    [
        """vllm serve org/name --api-key 'a # b'""",
        """vllm serve org/name --api-key "a | b" --port 8001""",
        "vllm serve org/name --api-key 'x",
        "A='x vllm serve org/name --port 8001",
    ],
)
def test_a_step_with_quotes_that_a_shell_would_read_otherwise_stays_as_it_is(step: str) -> None:
    assert completed(step, run_of(SERVE), {}) == step


def test_a_step_sets_no_more_than_its_change() -> None:
    step = "vllm serve org/name --host 0.0.0.0 --port 8001"

    assert completed(step, run_of(SERVE), {"--port": "8001"}) == SERVE + " --port 8001"


@pytest.mark.parametrize(
    "step",
    [
        "nvidia-smi",
        "vllm bench serve --model org/name",
        "ray start --head   # then, on the other node: vllm serve org/name",
        "vllm serve a/b\nvllm serve c/d",
    ],
)
def test_what_starts_no_server_stays_as_it_is(step: str) -> None:
    assert completed(step, run_of(SERVE), {}) in (step, step.replace("vllm serve org/name", SERVE))


def test_without_the_users_command_a_step_stays_as_it_is() -> None:
    step = "vllm serve org/name --max-num-seqs 64"

    assert completed(step, run_of(None), {}) == step


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (SERVE + " --max-num-seqs 64", "add to your command: --max-num-seqs 64"),
        (SERVE.replace("8192", "4096"), "change in your command: --max-model-len 4096"),
        (SERVE.replace(" --max-model-len 8192", ""), "leave out of your command: --max-model-len"),
        ("NCCL_DEBUG=INFO " + SERVE, None),
        (SERVE.replace("org/name", "other/name"), None),
        (SERVE + " 2>&1 | tee vllm.log", None),
        (SERVE, None),
    ],
)
def test_the_report_says_what_is_to_be_changed_in_a_command(
    command: str, expected: str | None
) -> None:
    assert difference(command, SERVE) == expected


def test_every_step_of_a_report_keeps_the_arguments_of_the_log() -> None:
    report = triage(FIXTURES / "oom/budget-0_8_5-another-process.log")

    assert report.root is not None
    starts = [step.command for step in report.root.fix_steps if step.command and "--model" in step.command]  # fmt: skip
    assert len(starts) >= 5
    assert all("--host 0.0.0.0" in one and "--tensor-parallel-size" in one for one in starts)
    assert "change in your command: --max-model-len 4096" in render(report)
