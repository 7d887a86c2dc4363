"""Meetings: steps reach the address and port at which the ranks meet."""

from pathlib import Path

import pytest

from vllm_triage import triage
from vllm_triage.meetings import Meeting

FAILED = "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect.\n"
INIT = "RuntimeError: Distributed init failed\n"
ARGUMENTS = "INFO 12-01 10:00:00 [utils.py:1] non-default args: {'model_tag': 'a/b', 'port': 8080, 'nnodes': 2, 'master_addr': '10.0.0.4'}\n"
TORCHRUN = "$ torchrun --nnodes=2 --master-addr 10.0.0.6 --master-port=29411 serve.py\n"
VLLM = "INFO 12-01 10:00:01 [parallel_state.py:1200] world_size=16 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.5:41235 backend=nccl\n"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("MASTER_ADDR=10.0.0.7\nMASTER_PORT=29400\n", "nc -zv 10.0.0.7 29400"),
        ("export MASTER_ADDR='head-0.llm'\n", "nc -zv head-0.llm 29500"),
        (VLLM, "nc -zv 10.0.0.5 41235"),
        (VLLM.replace("10.0.0.5", "127.0.0.1"), "nc -zv NODE2_IP 29500"),
        (TORCHRUN, "nc -zv 10.0.0.6 29411"),
        (ARGUMENTS, "nc -zv 10.0.0.4 29501"),
        (ARGUMENTS.replace(", 'master_addr': '10.0.0.4'", ""), "nc -zv NODE2_IP 29500"),
        ("", "nc -zv NODE2_IP 29500"),
    ],
)
def test_the_step_reaches_where_the_log_says_that_ranks_meet(
    tmp_path: Path, rows: str, expected: str
) -> None:
    path = tmp_path / "node.log"
    path.write_text("Starting the node\n" + rows + INIT)
    root = triage(path).root

    assert root is not None
    assert root.kind == "distributed.init_failed"
    assert any((step.command or "").endswith(expected) for step in root.fix_steps)


def test_the_line_that_fails_speaks_before_the_log(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    path.write_text(
        VLLM
        + "[E1201 05:58:37.3 socket.cpp:1023] [c10d] The client socket has timed out after 8000ms while trying to connect to (10.0.0.9, 9202).\n"
    )
    root = triage(path).root

    assert root is not None
    assert any("nc -zv 10.0.0.9 9202" in (step.command or "") for step in root.fix_steps)


@pytest.mark.parametrize(
    "text",
    [
        "MASTER_PORT=99999",
        "set MASTER_ADDR and MASTER_PORT on each node",
        "MASTER_ADDR=$HEAD_IP",
        "MASTER_ADDR=`hostname -i`",
        "--master-addr HEAD;reboot",
    ],
)
def test_what_is_no_address_or_port_is_not_taken(text: str) -> None:
    meeting = Meeting()
    meeting.feed(text)

    assert meeting.told({}) == {}
