"""What to run, release by release: the steps' commands in order, and the server's own command."""

from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from vllm_triage import Incident, triage

DOCKER = """docker run --gpus '"device=0"' -v ~/.cache/huggingface:/root/.cache/huggingface -e "HF_TOKEN=$HF_TOKEN" -p 8000:8000 --ipc=host vllm/vllm-openai:v0.3.3 --model mistralai/Mistral-7B-Instruct-v0.2"""
MODULE = "python -m vllm.entrypoints.openai.api_server --model"

# From what each release accepts: the commands of all steps in order, None for a step without one.
COMMANDS: dict[str, list[str | None]] = {
    # No `vllm` command, no fp8 cache before 0.4.3, and one card: no larger parallel size.
    "0_3_3-docker-context": [
        f"{DOCKER} --gpu-memory-utilization 0.85 --max-model-len 7344",
        f"{DOCKER} --gpu-memory-utilization 0.9",
    ],
    # Chunked prefill and prefix caching are to be switched on; 40 requests run, of 256 that may.
    "0_4_3-queue": [
        f"{MODULE} meta-llama/Meta-Llama-3-8B-Instruct --host 10.1.2.3 --port 8080 --enable-chunked-prefill",
        f"{MODULE} meta-llama/Meta-Llama-3-8B-Instruct --host 10.1.2.3 --port 8080 --enable-prefix-caching",
        f"{MODULE} meta-llama/Meta-Llama-3-8B-Instruct --host 10.1.2.3 --port 8080 --max-num-seqs 32",
        f"{MODULE} meta-llama/Meta-Llama-3-8B-Instruct --host 10.1.2.3 --port 8080 --tensor-parallel-size 2",
    ],
    # Both visible cards are in use and one sequence is the least: these two stand last, without a command.
    "0_6_3-all-cards-taken": [
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 2 --max-num-seqs 1 --gpu-memory-utilization 0.85",
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 2 --max-num-seqs 1 --max-model-len 4096",
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 2 --max-num-seqs 1 --quantization fp8",
        "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
        None,
        None,
    ],
    # --speculative-model is alive; the weights are AWQ already.
    "0_7_3-slow-awq": [
        "grep -E 'Model loading took|Loading model weights took' vllm.log",
        "vllm serve TheBloke/Llama-2-70B-AWQ --tensor-parallel-size 4 --quantization awq --enforce-eager --speculative-model DRAFT_MODEL --num-speculative-tokens 5",
        "vllm serve TheBloke/Llama-2-70B-AWQ --tensor-parallel-size 4 --quantization awq --enforce-eager --speculative-model '[ngram]' --num-speculative-tokens 3 --ngram-prompt-lookup-max 4",
        "vllm serve TheBloke/Llama-2-70B-AWQ --tensor-parallel-size 8 --quantization awq --enforce-eager",
        None,
    ],
    # 40960 tokens need 10 GiB, 4 GiB are there: 16384. 0.95 is the highest share.
    "0_8_5-cache-without-estimate": [
        "vllm serve /models/qwen3-32b --max-model-len 16384 --gpu-memory-utilization 0.95",
        "vllm serve /models/qwen3-32b --max-model-len 40960 --gpu-memory-utilization 0.95 --tensor-parallel-size 2",
        "vllm serve /models/qwen3-32b --max-model-len 40960 --gpu-memory-utilization 0.95 --kv-cache-dtype fp8",
    ],
    # 55.5 of 79 GiB is 0.7025; less two percent, rounded down: 0.68.
    "0_9_2-card-shared": [
        "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
        "CUDA_VISIBLE_DEVICES=1 vllm serve Qwen/Qwen3-8B --port 8001 --no-enable-prefix-caching --api-key '[redacted]'",
        "vllm serve Qwen/Qwen3-8B --port 8001 --no-enable-prefix-caching --api-key '[redacted]' --gpu-memory-utilization 0.68",
    ],
    "0_11_2-renamed-flag": [
        """docker run --gpus all -e 'HF_TOKEN=[redacted]' -p 8000:8000 vllm/vllm-openai:v0.11.2 --model Qwen/Qwen3-8B --max-model-len 8192 --structured-outputs-config '{"backend": "xgrammar"}'""",
        "vllm serve --help=PART_OF_THE_NAME   # --help=max lists every flag with max in its name",
        'python -c "import vllm; print(vllm.__version__)"',
    ],
    # CUDA graphs are off already and one card needs no all-reduce; the backend is a flag since 0.13.
    "0_13_0-illegal-access": [
        "dmesg -T | grep -iE 'xid|nvrm|amdgpu'",
        "CUDA_LAUNCH_BLOCKING=1 vllm serve Qwen/Qwen3-8B --enforce-eager",
        "vllm serve Qwen/Qwen3-8B --enforce-eager --attention-backend FLASHINFER",
        "pip install --upgrade vllm",
    ],
    "0_17_1-dropped-flag": [
        None,
        "vllm serve --help=PART_OF_THE_NAME   # --help=max lists every flag with max in its name",
        'python -c "import vllm; print(vllm.__version__)"',
    ],
    # vLLM's own estimate, down to a multiple of 16; the cache is in fp8 already.
    "0_33_0-cache-estimated": [
        "vllm serve Qwen/Qwen3-235B --tensor-parallel-size 8 --max-model-len 810208 --kv-cache-dtype fp8 --reasoning-parser qwen3 --enable-log-requests",
        "vllm serve Qwen/Qwen3-235B --tensor-parallel-size 8 --max-model-len 1048576 --kv-cache-dtype fp8 --reasoning-parser qwen3 --enable-log-requests --gpu-memory-utilization 0.95",
        "vllm serve Qwen/Qwen3-235B --tensor-parallel-size 16 --max-model-len 1048576 --kv-cache-dtype fp8 --reasoning-parser qwen3 --enable-log-requests",
    ],
}  # fmt: skip

OWN: dict[str, str | None] = {
    "0_3_3-docker-context": """docker run --gpus '"device=0"' -v ~/.cache/huggingface:/root/.cache/huggingface -e "HF_TOKEN=$HF_TOKEN" -p 8000:8000 --ipc=host vllm/vllm-openai:v0.3.3 --model mistralai/Mistral-7B-Instruct-v0.2 --gpu-memory-utilization 0.85 --max-model-len 7344""",
    "0_4_3-queue": f"{MODULE} meta-llama/Meta-Llama-3-8B-Instruct --host 10.1.2.3 --port 8080 --enable-chunked-prefill",
    "0_6_3-all-cards-taken": "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size 2 --max-num-seqs 1 --gpu-memory-utilization 0.85",
    "0_7_3-slow-awq": "vllm serve TheBloke/Llama-2-70B-AWQ --tensor-parallel-size 8 --quantization awq --enforce-eager",
    "0_8_5-cache-without-estimate": "vllm serve /models/qwen3-32b --max-model-len 16384 --gpu-memory-utilization 0.95",
    "0_9_2-card-shared": "vllm serve Qwen/Qwen3-8B --port 8001 --no-enable-prefix-caching --api-key '[redacted]' --gpu-memory-utilization 0.68",
    "0_11_2-renamed-flag": """docker run --gpus all -e 'HF_TOKEN=[redacted]' -p 8000:8000 vllm/vllm-openai:v0.11.2 --model Qwen/Qwen3-8B --max-model-len 8192 --structured-outputs-config '{"backend": "xgrammar"}'""",
    "0_13_0-illegal-access": "vllm serve Qwen/Qwen3-8B --enforce-eager --attention-backend FLASHINFER",
    "0_17_1-dropped-flag": "docker run --gpus all vllm/vllm-openai:v0.17.1 Qwen/Qwen3-8B --port 9000",
    "0_33_0-cache-estimated": "vllm serve Qwen/Qwen3-235B --tensor-parallel-size 8 --max-model-len 810208 --kv-cache-dtype fp8 --reasoning-parser qwen3 --enable-log-requests",
}  # fmt: skip

LAST: dict[str, list[str]] = {
    "0_6_3-all-cards-taken": [
        "not here: no larger size fits the visible GPUs",
        "not here: one sequence at a time is the least",
    ],
    "0_7_3-slow-awq": ["not here: the model is quantized already, as awq"],
}


def root(name: str) -> Incident:
    found = triage(Path(FIXTURES / "releases" / f"{name}.log")).root
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_steps_are_right_for_their_release(name: str) -> None:
    assert [step.command for step in root(name).fix_steps] == COMMANDS[name]


@pytest.mark.parametrize("name", OWN)
def test_the_own_command_differs_in_one_step(name: str) -> None:
    assert root(name).suggested_command == OWN[name]


@pytest.mark.parametrize("name", LAST)
def test_what_is_ruled_out_stands_last_and_says_why(name: str) -> None:
    steps = root(name).fix_steps

    assert [step.why for step in steps[-len(LAST[name]) :]] == LAST[name]
    assert all(step.documented for step in steps[-len(LAST[name]) :])
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))


@pytest.mark.parametrize(
    ("host", "asked"),
    [("10.1.2.3", "10.1.2.3"), ("0.0.0.0", "localhost"), ("::", "localhost")],
)  # fmt: skip
def test_a_server_on_one_address_is_asked_there(host: str, asked: str) -> None:
    line = "INFO 03-14 12:0%d:01 [loggers.py:118] Engine 000: Avg prompt throughput: 2399.2 tokens/s, Avg generation throughput: 180.1 tokens/s, Running: 10 reqs, Waiting: 90 reqs, GPU KV cache usage: 19.3%%, Prefix cache hit rate: 0.0%%"
    found = triage(
        iter(
            [
                "INFO 03-14 12:00:00 [api_server.py:1] vLLM API server version 0.10.2",
                f"INFO 03-14 12:00:00 [utils.py:1] non-default args: {{'model_tag': 'a/b', 'host': '{host}', 'port': 8080}}",
                *(line % minute for minute in range(1, 7)),
            ]
        )
    ).root

    assert found is not None
    assert f"curl -s http://{asked}:8080/metrics | grep prefix_cache" in [
        step.command for step in found.fix_steps
    ]
