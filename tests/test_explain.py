"""What `explain` shows for one release, and for several side by side."""

import pytest
import regex

from tests.test_cli import run
from vllm_triage.catalogue import Catalogue, load
from vllm_triage.kinds import Kind
from vllm_triage.reports.explain import explain

# What a step must say in an old and in a new release, thought out from the releases' flags.
DIFFERENT: list[tuple[str, str, str, str, str]] = [
    ("performance.slow_decode", "0.6.3", "vllm serve MODEL --speculative-model DRAFT_MODEL --num-speculative-tokens 5", "0.33",
     """vllm serve MODEL --speculative-config '{"method": "draft_model", "model": "DRAFT_MODEL", "num_speculative_tokens": 5}'"""),
    ("performance.slow_decode", "0.9.2", """vllm serve MODEL --speculative-config '{"model": "DRAFT_MODEL", "num_speculative_tokens": 5}'""", "0.15.1",
     """vllm serve MODEL --speculative-config '{"method": "draft_model", "model": "DRAFT_MODEL", "num_speculative_tokens": 5}'"""),
    ("loading.flash_attn_missing", "0.6.3", "VLLM_ATTENTION_BACKEND=XFORMERS vllm serve MODEL", "0.33", "vllm serve MODEL --attention-backend TRITON_ATTN"),
    ("loading.flash_attn_missing", "0.11.0", "VLLM_ATTENTION_BACKEND=TRITON_ATTN vllm serve MODEL", "0.13.0", "vllm serve MODEL --attention-backend TRITON_ATTN"),
    ("performance.high_ttft", "0.6.3", "vllm serve MODEL --enable-chunked-prefill", "0.33", "vllm serve MODEL --max-num-batched-tokens 16384"),
    ("performance.high_ttft", "0.7.3", "vllm serve MODEL --enable-prefix-caching", "0.8.0", "curl -s http://localhost:8000/metrics | grep prefix_cache"),
    ("distributed.nccl_cuda_error", "0.10.2", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800 vllm serve MODEL", "0.33", "vllm serve MODEL --distributed-timeout-seconds 1800"),
    ("multi-node", "0.10.2", "ray start --address=HEAD_IP:6379", "0.33",
     "vllm serve MODEL --tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2 --node-rank 1 --master-addr HEAD_IP --headless"),
    ("loading.gated_model", "0.6.3", "huggingface-cli login && vllm serve MODEL", "0.33", "hf auth login && vllm serve MODEL"),
]  # fmt: skip


def commands(page: str) -> list[str]:
    return regex.findall(r"^ {7}(\S.*)$", page, flags=regex.MULTILINE)


@pytest.mark.parametrize(("name", "old", "before", "new", "now"), DIFFERENT)
def test_a_release_gets_its_own_command(
    name: str, old: str, before: str, new: str, now: str, catalogue: Catalogue
) -> None:
    page, later = (commands(explain(name, catalogue, (release,))) for release in (old, new))

    assert before in page
    assert before not in later
    assert now in later
    assert now not in page


@pytest.mark.parametrize(("name", "old", "before", "new", "now"), DIFFERENT)
def test_two_releases_stand_side_by_side(
    name: str, old: str, before: str, new: str, now: str, catalogue: Catalogue
) -> None:
    page = explain(name, catalogue, (old, new))
    width = max(len(old), len(new))

    assert f"\n       {old:<{width}}  {before}\n       {new:<{width}}  {now}\n" in page
    assert f"vLLM {old} and {new}\n" in page


def test_what_is_the_same_in_both_releases_stands_once(catalogue: Catalogue) -> None:
    page = explain("oom.load", catalogue, ("0.6.3", "0.33"))

    assert page.count("vllm serve MODEL --tensor-parallel-size 2") == 1
    assert "\n       vllm serve MODEL --tensor-parallel-size 2\n" in page


def test_a_step_that_a_release_lacks_says_so(catalogue: Catalogue) -> None:
    page = explain("distributed.ray", catalogue, ("0.6.3", "0.33"))
    assert "\n       0.6.3  not in 0.6.3\n       0.33   pip install 'ray[cgraph]'\n" in page

    # The documented step has no form for 0.3.3 and none before 0.18.1 for a collective.
    page = explain("distributed.nccl_cuda_error", catalogue, ("0.3.3", "0.33"))
    assert "0.3.3  not in 0.3.3\n" in page


def test_servers_before_the_command_are_started_as_a_module(catalogue: Catalogue) -> None:
    page = explain("oom.load", catalogue, ("0.4.3", "0.5.5"))

    assert "0.4.3  python -m vllm.entrypoints.openai.api_server --model MODEL --max-model-len 4096" in page  # fmt: skip
    assert "0.5.5  vllm serve MODEL --max-model-len 4096" in page
    help_page = explain("config.invalid_argument", catalogue, ("0.4.3",))
    assert "python -m vllm.entrypoints.openai.api_server --help" in help_page


def test_a_release_between_two_that_were_read_gets_the_later_form(catalogue: Catalogue) -> None:
    page = explain("performance.slow_decode", catalogue, ("0.8.3",))

    assert (
        """--speculative-config '{"model": "DRAFT_MODEL", "num_speculative_tokens": 5}'""" in page
    )
    assert "[vLLM 0.8.5 - 0.9.2, documented]" in " ".join(page.split())


@pytest.mark.parametrize("name", [*Kind, *load().topics])
def test_only_commands_are_wider_than_the_screen(name: str, catalogue: Catalogue) -> None:
    for releases in ((), ("0.6.3",), ("0.6.3", "0.10.2", "0.33")):
        page = explain(name, catalogue, releases)
        wide = [row for row in page.split("\n") if len(row) > 80]
        assert [row for row in wide if not row.startswith(("       ", "  http"))] == []


def test_the_command_takes_several_releases() -> None:
    done = run(
        "explain",
        "performance.slow_decode",
        "--vllm",
        "0.6.3",
        "--vllm",
        "0.33",
        "--vllm",
        "0.6.3",
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "vLLM 0.6.3 and 0.33\n" in done.stdout


@pytest.mark.parametrize("release", ["banana", "", "latest"])
def test_what_is_no_release_is_one_sentence(release: str) -> None:
    done = run("explain", "oom.load", "--vllm", "0.33", "--vllm", release)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"--vllm {release}: not a release; write it as 0.10.2" in done.stderr
