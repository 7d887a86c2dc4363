"""What the run at hand rules out is not offered, and a documented step says why."""

import pytest

from vllm_triage import FixStep, Severity, triage
from vllm_triage.fixes import render_steps
from vllm_triage.rules import Fix, Rule

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.00 GiB is free."
ENGINE = "INFO 02-20 09:59:09 [core.py:50] Initializing a V1 LLM engine (v{0}) with config: model='a/b', tensor_parallel_size={1}, quantization=None, device_config=cuda"
WAITING = "INFO 02-20 10:0{0}:00 [loggers.py:80] Avg prompt throughput: 2200.1 tokens/s, Avg generation throughput: 610.0 tokens/s, Running: 40 reqs, Waiting: 75 reqs, GPU KV cache usage: 31.0%, Prefix cache hit rate: 0.0%"
CUSTOM = "ValueError: Loading a/b requires you to execute the configuration file in that repo on your local machine."


def given(version: str, arguments: str) -> list[str]:
    return [
        f"INFO 02-20 09:59:00 [api_server.py:1] vLLM API server version {version}",
        f"INFO 02-20 09:59:00 [utils.py:1] non-default args: {{'model_tag': 'a/b', {arguments}}}",
    ]


def steps(*rows: str) -> dict[str, FixStep]:
    root = triage(iter(rows)).root
    assert root is not None
    return {step.do: step for step in root.fix_steps}


CASES: dict[str, tuple[list[str], str, str]] = {
    "one card": (
        ["$ CUDA_VISIBLE_DEVICES=3 vllm serve a/b --port 1", OOM],
        "Spread the weights",
        "one GPU is visible",
    ),
    "a list of one card": (
        ["GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)", *given("0.10.2", "'port': 1"), OOM],
        "Spread the weights",
        "one GPU is visible",
    ),
    "all cards in use": (
        [*(f"GPU {i}: NVIDIA H100 80GB HBM3" for i in range(4)), *given("0.10.2", "'tensor_parallel_size': 4"), OOM],
        "Spread the weights",
        "no larger size fits the visible GPUs",
    ),
    "prefix caching in V1": (
        [*given("0.7.3", "'port': 1"), ENGINE.format("0.7.3", 1), *(WAITING.format(i) for i in range(1, 7))],
        "Reuse the KV cache",
        "on by default in this engine",
    ),
    "chunked prefill in V1": (
        [*given("0.7.3", "'port': 1"), ENGINE.format("0.7.3", 1), *(WAITING.format(i) for i in range(1, 7))],
        "Prefill long prompts",
        "on by default in this engine",
    ),
    "code is trusted already": (
        [*given("0.10.2", "'trust_remote_code': True"), CUSTOM],
        "Read the repository",
        "already set so",
    ),
    "one sequence": (
        [*given("0.10.2", "'max_num_seqs': 1"), OOM],
        "Serve fewer sequences",
        "one sequence at a time is the least",
    ),
    "a release without the form": (
        [*given("0.3.3", "'port': 1"), OOM],
        "Serve a quantized checkpoint",
        "it takes vLLM >=0.4.3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_documented_step_that_is_useless_stands_last_and_says_why(name: str) -> None:
    rows, begins, why = CASES[name]
    found = steps(*rows)
    step = next(step for do, step in found.items() if do.startswith(begins))

    assert step.why == f"not here: {why}"
    assert step.command is None
    assert step.change == {}
    assert step.documented_as is not None
    after = [one for one in found.values() if one.number > step.number]
    assert all(one.why is not None and one.why.startswith("not here: ") for one in after)


def test_ranks_that_span_nodes_are_not_held_to_one_nodes_cards() -> None:
    rows = ["GPU 0: NVIDIA A100-SXM4-80GB", *given("0.12.0", "'nnodes': 2, 'tensor_parallel_size': 1"), OOM]  # fmt: skip

    assert any(
        step.command == "vllm serve a/b --nnodes 2 --tensor-parallel-size 2"
        for step in steps(*rows).values()
    )


def test_a_feature_that_was_switched_off_may_be_switched_on() -> None:
    rows = [*given("0.7.3", "'enable_prefix_caching': False"), ENGINE.format("0.7.3", 1), *(WAITING.format(i) for i in range(1, 7))]  # fmt: skip

    assert any(
        step.command == "vllm serve a/b --enable-prefix-caching" for step in steps(*rows).values()
    )


RULE = Rule(
    title="t", severity=Severity.FATAL, summary="s", cause="c",
    fix=(
        Fix(do="Always."),
        Fix(do="For a fault.", where={"signal_name": ("SIGSEGV", "SIGBUS")}),
        Fix(do="Only for a kill.", needs=("signal_name=SIGKILL",)),
        Fix(do="Not for a kill.", unless=("signal_name=SIGKILL",)),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({}, ["Always.", "For a fault.", "Not for a kill."]),
        ({"signal_name": "SIGBUS"}, ["Always.", "For a fault.", "Not for a kill."]),
        ({"signal_name": "SIGKILL"}, ["Always.", "Only for a kill."]),
        (None, ["Always.", "For a fault.", "Only for a kill.", "Not for a kill."]),
    ],
)
def test_steps_depend_on_values(values: dict[str, str] | None, shown: list[str]) -> None:
    assert [step.do for step in render_steps(RULE, values, None)] == shown


@pytest.mark.parametrize(
    ("line", "wanted", "unwanted"),
    [
        ("[1]+  Killed                  vllm serve a/b", "memory.max", "PYTHONFAULTHANDLER"),
        ("Segmentation fault (core dumped)", "PYTHONFAULTHANDLER", "memory.max"),
        ("Illegal instruction (core dumped)", "lscpu", "PYTHONFAULTHANDLER"),
    ],
)
def test_a_crash_has_the_steps_of_its_signal(line: str, wanted: str, unwanted: str) -> None:
    text = " ".join(f"{step.command}" for step in steps(line).values())

    assert wanted in text
    assert unwanted not in text


def test_a_card_is_reset_by_an_address_that_nvidia_smi_takes() -> None:
    found = steps("[12345.6] NVRM: Xid (PCI:0000:17:00): 48, pid=1234, name=python, DBE")

    assert "nvidia-smi --gpu-reset -i 0000:17:00.0" in [step.command for step in found.values()]


def test_a_card_off_the_bus_is_not_reset() -> None:
    found = steps(
        "[12345.6] NVRM: Xid (PCI:0000:17:00): 79, pid=1234, GPU has fallen off the bus."
    )
    commands = [step.command for step in found.values()]

    assert "sudo reboot" in commands
    assert not any("gpu-reset" in (command or "") for command in commands)


def test_a_client_on_the_same_machine_passes_no_firewall() -> None:
    near = steps("ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 8898)")
    far = steps("ConnectionRefusedError: [Errno 111] Connect call failed ('10.0.0.7', 8898)")

    assert (
        list(near.values())[-1].why == "not here: a client on the same machine passes no firewall"
    )
    assert "sudo ufw allow 8898" in [step.command for step in far.values()]


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        ("NCCL INFO Bootstrap : Using ens5:10.0.0.4<0>", "ens5"),
        ("NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0> [1]enp3s0f1:10.0.0.4<0>", "enp3s0f1"),
        ("NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>", "eth0"),
        ("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.1.1.1<0>", "ib0"),
        ("no line of NCCL", "eth0"),
    ],
)  # fmt: skip
def test_an_interface_is_one_that_nccl_lists(listed: str, named: str) -> None:
    found = steps(
        f"node1:77:77 [0] {listed}",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    )

    assert f"NCCL_SOCKET_IFNAME={named} GLOO_SOCKET_IFNAME={named} vllm serve MODEL" in [
        step.command for step in found.values()
    ]


HUB = "huggingface_hub.errors."
OFFLINE = "Offline mode is on, but the cache lacks the files: switch it off for one start."


@pytest.mark.parametrize(
    ("line", "offline"),
    [
        (f"{HUB}OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/a/b: offline mode is enabled.", True),
        (f"{HUB}LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been disabled.", True),
        (f"{HUB}LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub", False),
        (f"{HUB}HfHubHTTPError: 503 Server Error: Service Unavailable for url: https://huggingface.co/api/models/a/b", False),
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /a/b/resolve/main/config.json (Caused by ConnectTimeoutError(1))", False),
    ],
)  # fmt: skip
def test_offline_mode_is_switched_off_only_where_the_log_says_that_it_is_on(
    line: str, *, offline: bool
) -> None:
    offered = steps(line)
    assert (OFFLINE in offered) is offline
    assert any(do.startswith("Test the way to") for do in offered) is not offline


@pytest.mark.parametrize(
    ("line", "builds"),
    [
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            True,
        ),
        ("torch.AcceleratorError: HIP error: invalid device function", True),
        ("RuntimeError: No CUDA GPUs are available", False),
        ("RuntimeError: CUDA error: invalid device ordinal", False),
    ],
)
def test_a_card_that_the_build_has_no_code_for_needs_another_build_and_not_its_container(
    line: str, *, builds: bool
) -> None:
    offered = steps(line)
    assert any("newer than the build" in do for do in offered) is builds
    assert any(do.startswith("In a container: hand") for do in offered) is not builds


def test_an_answer_that_harmony_cannot_read_asks_for_no_template() -> None:
    offered = steps(
        "openai_harmony.HarmonyError: Unexpected token 200002 while expecting start token 200006"
    )
    assert any("ignore_eos" in do for do in offered)
    assert not any("template" in do for do in offered)


def test_a_tool_parser_that_fails_asks_for_the_right_parser() -> None:
    offered = steps(
        "ERROR 05-03 17:38:30 [hermes_tool_parser.py:148] Error in extracting tool call from response."
    )
    assert next(iter(offered)) == "For tool calling: name the parser that fits the model."
