"""The documented errors: their kinds have exactly the documented steps, in the documented order."""

import pytest

from tests import documented_page
from vllm_triage.catalogue import Catalogue
from vllm_triage.fixes import render_steps, steps
from vllm_triage.kinds import Kind

_MODEL_STEPS = (
    "vllm serve meta-llama/Llama-3-8B-Instruct",
    "huggingface-cli login",
    "--trust-remote-code",
)
_PORT_STEPS = ("curl", "--host 0.0.0.0 --port 8000", "lsof -i :8000", "sudo ufw allow 8000")

# What each step is known by in the guide, section by section.
DOCUMENTED: dict[str, tuple[str, ...]] = {
    "oom.load": (
        "--gpu-memory-utilization 0.7", "--max-model-len 4096", "--quantization awq", "--tensor-parallel-size 2",
        "--max-num-seqs 128",
    ),
    "oom.inference": ("--gpu-memory-utilization 0.85", "--max-num-seqs 64", "max_tokens=512"),
    "oom.quantized": ("TheBloke/Llama-2-70B-AWQ --quantization awq", "--quantization awq --dtype float16"),
    "performance.low_throughput": (
        "watch -n 1 nvidia-smi", "--max-num-seqs 512", "--max-model-len 4096",
        "--enable-prefix-caching --enable-chunked-prefill --max-num-seqs 512", "--tensor-parallel-size",
    ),
    "performance.high_ttft": (
        "--enable-chunked-prefill", "--enable-prefix-caching", "--max-num-seqs 64", "--tensor-parallel-size 2",
    ),
    "performance.slow_decode": ("model's size", "--speculative-model DRAFT_MODEL", "--quantization fp8"),
    "loading.model_not_found": _MODEL_STEPS,
    "loading.gated_model": _MODEL_STEPS,
    "loading.trust_remote_code": _MODEL_STEPS,
    "loading.tokenizer_not_found": ("AutoTokenizer.from_pretrained", "vllm serve MODEL"),
    "loading.flash_attn_missing": ("pip install flash-attn --no-build-isolation", "--disable-flash-attn"),
    "network.connection_refused": _PORT_STEPS,
    "network.port_in_use": _PORT_STEPS,
    "network.slow_response": ("timeout=300.0", "ping", "three times", "proxy_read_timeout 300s"),
    "quantization.format_unsupported": ("--quantization awq", "model card"),
    "quantization.quality": ("quantization_config", "--quantization fp8", "temperature=0.8, top_p=0.95"),
    "distributed.init_failed": ("MASTER_ADDR", "ping", "NCCL_SOCKET_IFNAME=eth0"),
    "distributed.nccl_cuda_error": ("NCCL_SOCKET_IFNAME=eth0", "NCCL_TIMEOUT=1800", "NCCL_P2P_DISABLE=1"),
}  # fmt: skip

TOPICS: dict[str, tuple[str, ...]] = {
    "memory-budget": ("140 GB", "35 GB", "4x A100 40 GB or 2x A100 80 GB", "--gpu-memory-utilization 0.95 --max-model-len 4096"),
    "tuning": ("0.7, 0.85, 0.9, 0.95", "128, 256, 512, 1024", "vllm bench throughput"),
    "quantization-methods": ("SqueezeLLM", "128 to 512 samples", "12.3+"),
    "multi-node": ("MASTER_PORT", "29500", "--tensor-parallel-size 8 --pipeline-parallel-size 2", "NCCL_IB_DISABLE"),
    "debug-log": ("VLLM_LOGGING_LEVEL=DEBUG",),
    "nvidia-smi": ("nvidia-smi --query-gpu=memory.used,memory.free --format=csv -l 1",),
    "bench": ("vllm bench throughput", "vllm bench latency"),
    "metrics": ("rate(vllm:request_success_total[5m])", "time_to_first_token"),
    "health": ("/health", "/v1/models", "/v1/completions"),
    "environment": ("CUDA_VISIBLE_DEVICES", "VLLM_TRACE_FUNCTION", "VLLM_USE_V1", "NCCL_IB_DISABLE"),
    "bug-report": ("collect-env", "debug log", "full command"),
    "symptom-index": ("oom.load", "distributed.nccl_cuda_error"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_a_documented_error_has_its_steps_in_order(kind: str, catalogue: Catalogue) -> None:
    rule = catalogue.rules[Kind(kind)]
    shown = [step for step in render_steps(rule, {}, None) if step.documented]

    texts = [f"{step.do} {step.command} {step.documented_as}" for step in shown]

    assert len(texts) == len(DOCUMENTED[kind])
    for text, words in zip(texts, DOCUMENTED[kind], strict=True):
        assert words in text
    assert rule.symptom or kind == "network.port_in_use"


@pytest.mark.parametrize("version", ["0.2.7", "0.6.3", "0.10.2", "0.33.0"])
@pytest.mark.parametrize("kind", DOCUMENTED)
def test_no_release_loses_a_documented_step(kind: str, version: str, catalogue: Catalogue) -> None:
    shown = render_steps(catalogue.rules[Kind(kind)], {}, version)

    assert sum(step.documented for step in shown) == len(DOCUMENTED[kind])


@pytest.mark.parametrize("name", TOPICS)
def test_a_documented_topic_can_be_explained(name: str, catalogue: Catalogue) -> None:
    topic = catalogue.topics[name]
    shown = steps(topic.fix, {}, None)
    text = " ".join(
        [topic.title, topic.text, *(cell for row in topic.rows for cell in row)]
        + [f"{step.do} {step.command} {step.documented_as}" for step in shown]
    )

    for words in TOPICS[name]:
        assert words in text


def test_a_step_that_differs_says_why_in_half_a_line() -> None:
    for name, fix in documented_page.differing():
        assert fix.documented, name
        assert fix.why, f"{name}: {fix.documented_as}"
        assert len(fix.why) <= 150, f"{name}: {fix.why}"


def test_the_page_of_documented_steps_is_the_catalogue() -> None:
    page = documented_page.PAGE.read_text("utf-8")
    shown = page.partition(documented_page.START)[2].partition(documented_page.END)[0]

    assert shown == documented_page.table(), "write it again: python -m tests.documented_page"
