"""A bug report: what is in it, and what never is."""

import json
import os
import stat
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.conftest import FIXTURES
from tests.test_cli import run
from tests.test_redact import PLACES, SECRETS
from vllm_triage import tracebacks
from vllm_triage.archive import files, zipped
from vllm_triage.bundle import Bundle, gather
from vllm_triage.errors import SourceError
from vllm_triage.excerpts import MAX_LINE, Shown, around, excerpt
from vllm_triage.issue import MAX_BODY, body
from vllm_triage.outputs import write
from vllm_triage.sources import Reader
from vllm_triage.system import System, environment, trimmed
from vllm_triage.system import gather as look_at_system

LOG = FIXTURES / "oom" / "kv-cache-too-small.log"
HEALTHY = next((FIXTURES / "healthy").glob("*.log"))
HEADINGS = ("### Your current environment", "### 🐛 Describe the bug", "### Before submitting a new issue...")  # fmt: skip


def unpacked(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_bundle_holds_the_triage_the_log_the_command_and_the_machine(tmp_path: Path) -> None:
    done = run("report", "-o", tmp_path / "bundle.zip", LOG)
    texts = unpacked(tmp_path / "bundle.zip")

    assert (done.returncode, done.stderr) == (0, "")
    assert "oom.kv_cache" in done.stdout
    assert {"README.txt", "triage.md", "triage.json", "issue.md", "command.txt", "versions.txt", "system.txt",
            "nvidia-smi.txt", "logs/001-kv-cache-too-small.log.txt"} <= {*texts}  # fmt: skip
    assert json.loads(texts["triage.json"])["incidents"][0]["kind"] == "oom.kv_cache"
    assert texts["command.txt"].startswith("vllm serve /srv/models/medium-llama --host 127.0.0.1 --port 12515 --max-model-len 65536")  # fmt: skip
    assert "vLLM: 0.10.2.post2 (banner)" in texts["versions.txt"]
    assert "Python: " in texts["system.txt"]
    shown = texts["logs/001-kv-cache-too-small.log.txt"]
    assert "\n 44: (EngineCore_DP0 pid=9862) ERROR 12-01 06:20:07 [core.py:718] ValueError: To serve at least one request" in shown  # fmt: skip


def test_a_bundle_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        assert run("report", "--no-system", "-o", tmp_path / name, LOG, HEALTHY).returncode == 0

    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == sorted(archive.namelist())


def test_names_and_variables_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    log = Path(os.fsdecode(os.fsencode(tmp_path) + b"/pod-\xff.log"))
    log.write_bytes(LOG.read_bytes())
    env = {"VLLM_X": os.fsdecode(b"\xff")}
    done = run("report", "--for-github", log, env=env)

    assert (done.returncode, done.stderr) == (0, "")
    assert "VLLM_X=\ufffd" in done.stdout
    assert run("report", "-o", f"{log}.zip", log, env=env).returncode == 0


def test_nothing_of_this_machine_is_in_it_without_system(tmp_path: Path) -> None:
    done = run(
        "report", "--no-system", "-o", tmp_path / "x.zip", LOG, env={"NCCL_DEBUG": "NOTHERE"}
    )
    texts = unpacked(tmp_path / "x.zip")

    assert done.returncode == 0
    assert not {"system.txt", "environment.txt", "nvidia-smi.txt"} & {*texts}
    assert not any("NOTHERE" in text for text in texts.values())
    assert "--no-system" in texts["README.txt"]


def test_the_environment_of_this_machine_is_in_it(tmp_path: Path) -> None:
    run(
        "report", "-o", tmp_path / "x.zip", LOG, env={"NCCL_DEBUG": "INFO", "UNRELATED": "NOTHERE"}
    )
    texts = unpacked(tmp_path / "x.zip")

    assert "NCCL_DEBUG=INFO\n" in texts["environment.txt"]
    assert not any("NOTHERE" in text for text in texts.values())


def test_a_log_without_incident_makes_a_bundle_that_says_so(tmp_path: Path) -> None:
    done = run("report", "-o", tmp_path / "x.zip", HEALTHY)
    texts = unpacked(tmp_path / "x.zip")

    assert done.returncode == 0
    assert "no incident was found" in done.stdout
    assert "No incident was found in these logs." in texts["README.txt"]
    assert "found no incident" in texts["issue.md"]


def test_standard_input_is_read_once_and_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vllm_triage", "report", "--no-system", "-o", "-", "-"],
        input=LOG.read_bytes(),
        capture_output=True,
        check=False,
    )
    with zipfile.ZipFile(BytesIO(done.stdout)) as archive:
        shown = archive.read("logs/001-stdin.txt").decode()
        report = json.loads(archive.read("triage.json"))

    assert done.returncode == 0
    assert "To serve at least one request" in shown
    assert report["incidents"][0]["evidence"][0] == {
        "source": "<stdin>",
        "line": 44,
        "text": report["incidents"][0]["evidence"][0]["text"],
    }


def test_what_cannot_be_read_is_told_and_the_rest_is_bundled(tmp_path: Path) -> None:
    done = run(
        "report",
        "-o",
        tmp_path / "x.zip",
        "--attach",
        tmp_path / "no.txt",
        LOG,
        tmp_path / "no.log",
    )
    readme = unpacked(tmp_path / "x.zip")["README.txt"]

    assert done.returncode == 2
    assert "no.log: no such file" in done.stderr
    assert "no.txt: no such file" in done.stderr
    assert "no.log: no such file" in readme


def test_a_file_is_replaced_whole_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    target = tmp_path / "bundle.zip"
    target.write_text("old")

    assert run("report", "--no-system", "-o", target, LOG).returncode == 0
    assert zipfile.is_zipfile(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.zip"]


def test_what_is_no_file_to_write_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    log = tmp_path / "pod.log"
    log.write_bytes(LOG.read_bytes())
    for target, words in (
        (tmp_path, "is no regular file"),
        (Path(os.devnull), "is no regular file"),
        (tmp_path / "missing" / "x.zip", "there is no such folder"),
        (log, "is one of the inputs"),
    ):
        done = run("report", "-o", target, log)

        assert done.returncode == 2, target
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
    assert log.read_bytes() == LOG.read_bytes()


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "x.zip"
    target.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SourceError, match="No space left on device"):
        write(target, b"new")

    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


@pytest.mark.parametrize(
    ("args", "words"),
    [((), "no log given"), ((LOG,), "-o bundle.zip"), (("-o", "x.zip"), "no log given")],
)
def test_a_call_that_lacks_something_says_what(args: tuple[str, ...], words: str) -> None:
    done = run("report", *args)

    assert done.returncode == 2
    assert words in done.stderr


def test_attached_files_are_taken_along(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("env:\n- name: HF_TOKEN\n  value: verysecret\n- name: RANK\n  value: '0'\n")
    binary = tmp_path / "x.bin"
    binary.write_bytes(bytes(range(256)))

    done = run("report", "-o", tmp_path / "x.zip", "--attach", path, "--attach", binary, LOG)

    assert unpacked(tmp_path / "x.zip")["files/001-pod.yaml"] == (
        "env:\n- name: HF_TOKEN\n  value: [redacted]\n- name: RANK\n  value: '0'\n"
    )
    assert done.returncode == 2
    assert "looks like a binary file" in done.stderr


def test_the_documented_list_is_the_real_one(tmp_path: Path) -> None:
    page = (FIXTURES.parent / "docs" / "report.md").read_text("utf-8")
    run("report", "--no-system", "-o", tmp_path / "x.zip", LOG)

    assert page.partition("```text\n")[2].partition("```")[0] == unpacked(tmp_path / "x.zip")["README.txt"]  # fmt: skip


def test_the_issue_keeps_the_order_of_the_template() -> None:
    done = run("report", "--for-github", LOG)
    places = [done.stdout.index(heading) for heading in HEADINGS]

    assert done.returncode == 0
    assert done.stdout.startswith("<!-- Title: [Bug]: vLLM refused to start: the KV cache does not fit -->")  # fmt: skip
    assert places == sorted(places)
    assert "vllm serve /srv/models/medium-llama --host 127.0.0.1" in done.stdout
    assert "ValueError: To serve at least one request" in done.stdout
    assert done.stdout.endswith("of the documentation page.\n")


def test_the_issue_holds_the_output_of_collect_env_where_it_is_given(tmp_path: Path) -> None:
    path = tmp_path / "env.txt"
    path.write_text("Collecting environment information...\nPyTorch version: 2.8.0+cu128\n")
    done = run("report", "--for-github", "--attach", path, LOG)

    assert "<code>python collect_env.py</code>" in done.stdout
    assert "PyTorch version: 2.8.0+cu128" in done.stdout


def big_log(path: Path, lines: int = 60_000) -> Path:
    """A healthy log with a crash in its middle."""
    rows = [f"INFO 12-01 10:00:00 [x.py:1] line {number} {'`x`<b>' * 8}" for number in range(1, lines + 1)]  # fmt: skip
    rows[lines // 2] = "ERROR 12-01 10:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.00 GiB is free."  # fmt: skip
    path.write_text("\n".join(rows) + "\n")
    return path


def test_the_issue_fits_whatever_the_log(tmp_path: Path) -> None:
    found = gather([big_log(tmp_path / "big.log")], context=10_000)
    huge = System("x" * 99_999, "y" * 99_999, "z" * 99_999, "`" * 99_999, "")
    text = body(found._replace(system=huge))

    assert len(text) <= MAX_BODY
    assert "CUDA out of memory" in text
    assert text.endswith("of the documentation page.\n")
    assert all(heading in text for heading in HEADINGS)


def test_of_a_large_log_the_lines_around_what_matters_are_taken(tmp_path: Path) -> None:
    path = big_log(tmp_path / "big.log")
    found = gather([path], context=3)
    numbers = [one.number for one in found.logs[0].lines]
    rows = found.logs[0].text().splitlines()

    assert numbers == [*range(1, 51), *range(29_998, 30_005), *range(59_951, 60_001)]
    assert rows[0].startswith("    1: INFO")
    assert rows[50] == "[lines 51 to 29997 left out]"
    assert rows[54].startswith("30001: ERROR 12-01 10:00:00 [core.py:1] torch.OutOfMemoryError")
    assert len(rows) == 50 + 1 + 7 + 1 + 50


def test_an_excerpt_over_its_bound_keeps_what_is_nearest(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("".join(f"{'y' * 90}\n" for _ in range(1000)))
    found = excerpt(Reader(path), total=1000, is_whole=True, anchors=[500], max_chars=10_000)
    numbers = [one.number for one in found.lines]

    assert 500 in numbers
    assert numbers == list(range(min(numbers), max(numbers) + 1))
    assert 50 <= len(numbers) <= 100
    assert abs((500 - min(numbers)) - (max(numbers) - 500)) <= 1


def test_a_long_line_is_cut_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(f"{'x' * 100_000}\n")
    found = excerpt(Reader(path), total=1, is_whole=True, anchors=[])

    assert found.lines[0].text == f"{'x' * MAX_LINE} [91808 characters left out]"


def test_the_lines_before_an_error_count_more_than_those_after() -> None:
    lines = [Shown(number, "x" * 90) for number in range(1, 101)]
    numbers = [one.number for one in around(lines, 50, 2_000)]

    assert numbers == list(range(35, 55))


# What a report must not change: none of it is a secret.
LOOK_ALIKES = (
    "chatcmpl-5c1f941a95c97033f0ddbc21bafbf6c4",
    "3f2a1b0c9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "max_num_batched_tokens=8192",
    "GPU-5a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
)


def test_what_looks_like_a_secret_stays(tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    path.write_text(LOG.read_text("utf-8") + "".join(f"INFO {text}\n" for text in LOOK_ALIKES))
    texts = files(gather([path]))

    for text in LOOK_ALIKES:
        assert f"INFO {text}\n" in texts["logs/001-pod.log.txt"]


def of_everything(folder: Path, secret: str) -> Bundle:
    """A bundle of inputs that hold a secret in every place."""
    said = [place.replace("§", secret) for place in PLACES]
    names = [name for name in said if "/" not in name and "\\" not in name and len(name) < 200]
    rows = LOG.read_text("utf-8").splitlines()
    rows[43:43] = [
        f"(EngineCore_DP0 pid=1) ERROR 12-01 06:20:07 [core.py:1] {text}" for text in said
    ]
    rows += [
        f"- value: {secret}",
        "  name: HF_TOKEN",
        f"HF_HOME=/x\0KEY={secret}\0",
        "-----BEGIN RSA PRIVATE KEY-----",
        secret,
        "-----END RSA PRIVATE KEY-----",
        f"ValueError: api_key={secret}",
    ]
    head = [
        f"$ HF_TOKEN={secret} vllm serve org/model --api-key {secret} x{secret} --hf-token {secret} --port 80",
        f"INFO 12-01 06:19:38 [utils.py:1] non-default args: {{'model': 'org/model', 'api_key': ['{secret}', 'x{secret}'], 'hf_token': '{secret}'}}",
    ]
    log = folder / f"hf_{secret}.log"
    log.write_text("\n".join([*head, *rows]) + "\n")
    attached = folder / f"token={secret}.yaml"
    attached.write_text(
        "\n".join(
            [
                *said,
                "- name: MY_PASSWORD",
                f"  value: {secret}",
                "- --api-key",
                f"- {secret}",
                "x: y",
                f"- value: {secret}",
                "  name: MY_TOKEN_2",
                f'"value": "{secret}",',
                '"comment": "x",',
                '"name": "HF_TOKENX"',
                f"KEY={secret}",
                f"PATH=/bin\0DB_PASSWD={secret} {secret}\0KEY={secret}\0HOME=/root\0",
                f"vllm\0serve\0--api-key\0{secret}\0",
                f"HF_TOKEN=\x1b[1m{secret[:9]}\x1b[0m{secret[9:]}",
            ]
        )
    )
    variables = {"HF_TOKEN": secret, "VLLM_API_KEY": secret, "HTTPS_PROXY": f"http://user:{secret}@proxy:1",
                 "NCCL_SOME_SECRET": secret, "RAY_REDIS_PASSWORD": secret}  # fmt: skip
    variables |= {f"VLLM_{number}": text for number, text in enumerate(said)}
    system = System("OS: x\n", "vllm 0.10.2\n", environment(variables), "NVIDIA-SMI\n", "")
    missing = [folder / "missing" / name for name in names[:5]]
    return gather([log, *missing], attached=[attached], system=system)


# A line of a private key that reads as the name of an exception is taken for one.
@settings(max_examples=10, deadline=None)
@given(secret=SECRETS.filter(lambda text: tracebacks._EXCEPTION.match(text) is None))
def test_a_secret_is_nowhere_in_a_bundle(
    tmp_path_factory: pytest.TempPathFactory, secret: str
) -> None:
    found = of_everything(tmp_path_factory.mktemp("secrets"), secret)
    texts = files(found)

    assert {name.partition("/")[0] for name in texts} >= {"logs", "files", "environment.txt", "command.txt"}  # fmt: skip
    assert not [name for name, text in texts.items() if secret in name or secret in text]
    assert secret not in body(found)
    assert secret.encode() not in zipped(texts)


def test_prompts_are_in_no_bundle(tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    rows = LOG.read_text("utf-8").splitlines()
    rows.insert(40, "(APIServer pid=1) INFO 12-01 06:20:06 [logger.py:41] Received request cmpl-1: prompt: 'HARK', params: SamplingParams(n=1), prompt_token_ids: None, lora_request: None.")  # fmt: skip
    path.write_text("\n".join(rows) + "\n")
    texts = files(gather([path]))

    assert (
        "prompt: [prompt left out], params: SamplingParams(n=1)" in texts["logs/001-pod.log.txt"]
    )
    assert not any("HARK" in text for text in texts.values())


def test_of_a_secret_variable_only_its_name_is_shown() -> None:
    shown = environment(
        {"HF_TOKEN": "abc", "HF_HOME": "/x", "VLLM_API_KEY": "", "RANK": "0", "HOME": "/root", "NCCL_IB_HCA": "mlx5",
         "TOKENIZERS_PARALLELISM": "false", "https_proxy": "http://u:p4ssw0rd@p:1", "RAY_AUTH": "x", "SECRET": "y"}
    )  # fmt: skip

    assert shown.splitlines() == [
        "HF_HOME=/x", "HF_TOKEN=[redacted]", "NCCL_IB_HCA=mlx5", "RANK=0", "RAY_AUTH=[redacted]", "TOKENIZERS_PARALLELISM=false",
        "VLLM_API_KEY=", "https_proxy=http://[redacted]@p:1",
    ]  # fmt: skip


def test_a_variable_of_several_lines_or_of_no_text_is_shown_on_one() -> None:
    shown = environment({"VLLM_A": "1\n2\x1b[31m", "VLLM_B": "\udcff", "VLLM_C": "x" * 5_000})

    assert [row[:20] for row in shown.splitlines()] == [
        "VLLM_A=1 2\ufffd[31m", "VLLM_B=\ufffd", "VLLM_C=xxxxxxxxxxxxx",
    ]  # fmt: skip
    assert len(shown) < 1_100


def stub(folder: Path, script: str) -> None:
    """An nvidia-smi of our own."""
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_nvidia_smi_is_asked_in_three_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub(tmp_path, 'case "$1" in -q) echo "Driver Version : 570.1";; topo) echo "GPU0 X NV18";; *) echo "| NVIDIA H100 |";; esac')  # fmt: skip
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = look_at_system({})

    assert found.gpus == "| NVIDIA H100 |\n\nGPU0 X NV18\n"
    assert found.gpu_details == "Driver Version : 570.1\n"


def test_an_nvidia_smi_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = look_at_system({}, timeout_s=0.2)

    assert found.gpus == "nvidia-smi did not answer within 0.2 s (nvidia-smi): the driver or a GPU hangs.\n"  # fmt: skip
    assert found.gpu_details == ""


def test_an_nvidia_smi_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert look_at_system({}).gpus.startswith(
        "Failed to initialize NVML: Driver/library version mismatch\n\nnvidia-smi ended with exit code 18.\n"
    )


def test_details_keep_what_is_known() -> None:
    details = """
==============NVSMI LOG==============

Timestamp                                 : Wed Dec  2 10:00:00 2026
Driver Version                            : 570.1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA H100
    Serial Number                         : 1234567890
    MIG Mode
        Current                           : N/A
        Pending                           : N/A
    ECC Errors
        Volatile
            SRAM Correctable              : 0
        Aggregate
            SRAM Correctable              : N/A
"""

    assert trimmed(details).splitlines() == [
        "==============NVSMI LOG==============",
        "Driver Version                            : 570.1",
        "GPU 00000000:01:00.0",
        "    Product Name                          : NVIDIA H100",
        "    ECC Errors",
        "        Volatile",
        "            SRAM Correctable              : 0",
    ]
