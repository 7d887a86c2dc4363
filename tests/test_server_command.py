"""The server's own command, as the log shows it, with a change made."""

import json

import pytest

from tests.conftest import FIXTURES
from tests.test_cli import run
from vllm_triage import Report, triage
from vllm_triage.commands import flags_of

LOG = FIXTURES / "oom" / "kv-cache-too-small.log"
FAILURE = "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (4096)."


def report(*rows: str) -> Report:
    return triage(iter([*rows, FAILURE]))


def command(*rows: str) -> str | None:
    root = report(*rows).root
    assert root is not None
    return root.suggested_command


def test_an_old_log_that_prints_all_arguments_gives_those_that_were_set() -> None:
    found = command(
        "INFO 10-12 15:26:11 api_server.py:526] vLLM API server version 0.6.6",
        "INFO 10-12 15:26:11 api_server.py:527] args: Namespace(model_tag='org/model', host=None, port=19000, uvicorn_log_level='info', gpu_memory_utilization=0.8, enforce_eager=True, max_num_seqs=256, dtype='auto')",
    )

    assert (
        found
        == "vllm serve org/model --port 19000 --gpu-memory-utilization 0.8 --enforce-eager --max-model-len 4096"
    )


def test_a_server_started_as_a_module_stays_one() -> None:
    found = command(
        "INFO 10-12 15:26:11 api_server.py:217] vLLM API server version 0.5.4",
        "INFO 10-12 15:26:11 api_server.py:218] args: Namespace(model='org/model', port=8000, gpu_memory_utilization=0.7)",
    )

    assert (
        found
        == "python -m vllm.entrypoints.openai.api_server --model org/model --gpu-memory-utilization 0.7 --max-model-len 4096"
    )


def test_secrets_and_words_for_the_shell_are_safe() -> None:
    found = command(
        "INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.10.2",
        "INFO 05-01 10:00:00 [utils.py:1] non-default args: {'model_tag': 'org/model', 'api_key': ['s3cr3t'], 'served_model_name': ['a; rm -rf /'], 'gpu_memory_utilization': 0.8}",
    )

    assert found is not None
    assert "s3cr3t" not in found
    assert "'a; rm -rf /'" in found


def test_no_command_is_made_up() -> None:
    assert command("INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.10.2") is None


def test_apply_steps_combines_changes() -> None:
    done = run(LOG, "--apply-steps", "1,2", "--format", "json")
    found = json.loads(done.stdout)["incidents"][0]["suggested_command"]

    assert "--max-model-len 21760" in found
    assert "--gpu-memory-utilization 0.95" in found
    assert "--tensor-parallel-size" not in found


@pytest.mark.parametrize(
    ("value", "told"), [("99", "step 99"), ("x", "step numbers"), ("1;2", "step numbers")]
)
def test_steps_that_cannot_be_applied_are_one_sentence(value: str, told: str) -> None:
    done = run(LOG, "--apply-steps", value)

    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("vllm serve m --a 1 --b", {"--a": "1", "--b": ""}),
        ("vllm serve m --a=1", {"--a": "1"}),
        ("vllm serve other --a 1", {}),
        ("vllm serve m --a 1; rm x", {}),
        ("vllm serve m --a 1 2", {}),
        ("curl http://x", {}),
        (None, {}),
    ],
)
def test_a_plain_serve_command_says_what_it_changes(
    text: str | None, flags: dict[str, str]
) -> None:
    assert flags_of(text, "m") == flags


def test_where_the_release_is_unknown_the_older_way_is_named() -> None:
    page = run("explain", "performance.slow_decode").stdout

    assert "--speculative-config" in page
    assert "--speculative-model" in page
