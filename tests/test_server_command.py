"""The server's own command, as the log shows it, with a change made."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Fixture, fixtures, name_of
from tests.test_cli import run
from vllm_triage import Incident, Report, commands, triage
from vllm_triage.commands import flags_of
from vllm_triage.echoes import Echo

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


SHARED = FIXTURES / "releases" / "0_33_0-cache-estimated.log"


def applied(steps: str) -> str:
    done = run(SHARED, "--apply-steps", steps, "--format", "json")
    return str(json.loads(done.stdout)["incidents"][0]["suggested_command"])


def test_apply_steps_combines_changes() -> None:
    both = applied("1,2")

    assert "--max-model-len 810208" in both
    assert "--gpu-memory-utilization 0.95" in both
    assert "--tensor-parallel-size 8 " in both
    assert applied("2,1,1") == both
    assert "--max-model-len 1048576" in applied("2")


def test_steps_that_change_the_same_flag_cannot_be_combined(tmp_path: Path) -> None:
    log = tmp_path / "quantization.log"
    log.write_text(
        "INFO 10-15 10:00:00 [api_server.py:1] vLLM API server version 0.10.2\n"
        "INFO 10-15 10:00:00 [utils.py:1] non-default args: {'model_tag': 'a/b', 'quantization': 'awq'}\n"
        "ValueError: Cannot find the config file for awq\n"
    )
    done = run(log, "--apply-steps", "1,3")

    # One removes the flag, the other sets it to fp8.
    assert done.returncode == 2
    assert (
        "steps 1 and 3 of quantization.format_unsupported both change --quantization"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1


def test_a_step_without_a_change_cannot_be_applied() -> None:
    done = run(SHARED, "--apply-steps", "1,0")

    assert done.returncode == 2
    assert "step 0 of oom.kv_cache changes no argument" in done.stderr


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


ECHOES = {
    "a prompt": (["$ vllm serve org/model --max-model-len 8192 --port 9000 2>&1 | tee x.log"],
        "vllm serve org/model --max-model-len 4096 --port 9000"),
    "underscores and a sign": (["+ vllm serve org/model --max_model_len=8192 -tp 2"],
        "vllm serve org/model --max_model_len=4096 -tp 2"),
    "an assignment": (["$ CUDA_VISIBLE_DEVICES=0,1 NOTE='a b' vllm serve org/model --port 1"],
        "CUDA_VISIBLE_DEVICES=0,1 NOTE='a b' vllm serve org/model --port 1 --max-model-len 4096"),
    "a module": (["root@pod:/app# python3 -m vllm.entrypoints.openai.api_server --model org/model --dtype half"],
        "python3 -m vllm.entrypoints.openai.api_server --model org/model --dtype half --max-model-len 4096"),
    "continued lines": (["docker run --gpus all \\", "  -e HF_TOKEN=hf_abcdefghijklmnop --rm \\", "  vllm/vllm-openai:v0.10.2 \\", "  --model org/model \\", "  --api-key s3cr3t --max-model-len 8192"],
        "docker run --gpus all -e 'HF_TOKEN=[redacted]' --rm vllm/vllm-openai:v0.10.2 --model org/model --api-key '[redacted]' --max-model-len 4096"),
    "several keys": (["$ vllm serve org/model --api-key one two --max-model-len 8192"],
        "vllm serve org/model --api-key '[redacted]' '[redacted]' --max-model-len 4096"),
    "a folder in the home": (["$ podman run --name vllm -v $(pwd)/m:/m -v ~/.cache:/c vllm/vllm-openai:latest --model org/model"],
        'podman run --name vllm -v "$PWD/m:/m" -v ~/.cache:/c vllm/vllm-openai:latest --model org/model --max-model-len 4096'),
    "a list of a manifest": (["      args:", "        - --model", '        - "org/model"', "        - --max-model-len=8192", "        - --trust-remote-code", "      env: []"],
        "vllm serve org/model --max-model-len=4096 --trust-remote-code"),
    "a list on one line": (['    command: ["vllm", "serve", "org/model", "--port", "80"]'],
        "vllm serve org/model --port 80 --max-model-len 4096"),
    "a shell in a manifest": (['    command: ["/bin/sh", "-c", "vllm serve org/model --port 80 && sleep 1"]'],
        "vllm serve org/model --port 80 --max-model-len 4096"),
    "values of several words": (["$ vllm serve org/model --lora-modules a=/x b=/y --max-model-len 8192"],
        "vllm serve org/model --lora-modules a=/x b=/y --max-model-len 4096"),
}  # fmt: skip


@pytest.mark.parametrize("name", ECHOES)
def test_an_echoed_command_keeps_its_words(name: str) -> None:
    rows, wanted = ECHOES[name]

    assert command(*rows) == wanted


@pytest.mark.parametrize(
    "row",
    [
        "$ vllm serve org/model --port $(cat port)",
        "$ vllm serve org/model --port `cat port`",
        "$ vllm serve org/model --note 'unbalanced",
        "vllm serve fails when the port is taken",
        "vllm serve [model_tag] [options]",
        "INFO 05-01 10:00:00 [x.py:1] try vllm serve org/model --port 1",
        "    args: {'model': 'x'}",
        "$ docker run --gpus all nginx --model org/model",
    ],
)
def test_what_is_no_plain_command_is_not_rebuilt(row: str) -> None:
    assert command(row) is None


def test_another_command_after_the_first_is_not_taken_along() -> None:
    found = command("$ vllm serve org/model --port 1; rm -rf / --no-preserve-root")

    assert found == "vllm serve org/model --port 1 --max-model-len 4096"


def test_a_list_of_a_manifest_ends() -> None:
    rows = ["args:", "- --model", "- org/model", "done", "- --port", "- 9"]

    assert command(*rows) == "vllm serve org/model --max-model-len 4096"


def flags_in(text: str) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    flag = ""
    for word in shlex.split(text):
        if "vllm-openai" in word:
            out, flag = {}, ""  # what stands before the image is Docker's
        elif word.startswith("--"):
            flag, _, value = word.partition("=")
            flag = flag.replace("_", "-")
            out[flag] = [value] if value else []
        elif flag:
            out[flag].append(word)
    return out


def differing(incident: Incident, arguments: Mapping[str, object]) -> set[str]:
    """The flags of a suggested command that are not as the run had them."""
    shown = flags_in(incident.suggested_command or "")
    had = {"--" + name.replace("_", "-"): value for name, value in arguments.items()}
    wrong = set()
    for flag, words in shown.items():
        positive = "--" + flag.removeprefix("--no-") if flag.startswith("--no-") else flag
        before = had.pop(flag if flag in had else positive, None)
        values = [str(one) for one in before] if isinstance(before, list) else [] if isinstance(before, bool) else [str(before)]  # fmt: skip
        if before is None or (values != words and words != ["[redacted]"]):
            wrong.add(flag)
    for flag, value in had.items():
        default = commands.is_default(flag[2:].replace("-", "_"), value)
        if value not in (None, False) and flag not in OTHER_NAMES and not default:
            wrong.add(flag)
    return wrong


OTHER_NAMES = ("--model", "--model-tag", "--subparser", "--disable-log-config-file")


@pytest.mark.parametrize("fixture", list(fixtures()), ids=name_of)
def test_an_own_command_differs_only_in_the_flags_of_its_step(fixture: Fixture) -> None:
    found = triage(fixture.log)
    for incident in found.incidents:
        if incident.suggested_command is None:
            continue
        run_info = next(one for one in found.runs if one.model and one.model in incident.suggested_command)  # fmt: skip
        flags = differing(incident, run_info.arguments)

        assert flags
        assert any(flags <= set(step.change) for step in incident.fix_steps)
        assert shlex.join(shlex.split(incident.suggested_command))
        assert "{" not in incident.suggested_command or "'" in incident.suggested_command


def test_many_logs_show_their_arguments() -> None:
    shown = [one for one in fixtures() if any(run.arguments for run in triage(one.log).runs)]

    assert len(shown) >= 40


def test_an_argument_that_was_switched_off_is_switched_off_again() -> None:
    found = command(
        "INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.10.2",
        "INFO 05-01 10:00:00 [utils.py:1] non-default args: {'model_tag': 'org/model', 'enable_prefix_caching': False, 'no_such_switch': False}",
    )

    assert found == "vllm serve org/model --no-enable-prefix-caching --max-model-len 4096"


def test_what_was_echoed_as_switched_off_can_be_switched_on() -> None:
    echo = Echo(("vllm", "serve", "org/model", "--no-enable-prefix-caching", "--port", "9000"), 2)

    on = commands._edited(echo, {"--enable-prefix-caching": ""})

    assert on == "vllm serve org/model --port 9000 --enable-prefix-caching"
    assert commands._edited(echo, {"--port": "9000"}) is None
