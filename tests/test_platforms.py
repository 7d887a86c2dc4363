"""Platforms: steps carry the pod that the input names, and fit the scheduler and the make of GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_triage import Report, triage
from vllm_triage.platforms import pod

DEAD = "(APIServer pid=1) ERROR 05-04 10:00:09 [async_llm.py:480] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n"
KILLED = "(EngineCore_DP0 pid=88) ERROR 05-04 10:02:11 [multiproc_executor.py:154] Worker proc VllmWorker-1 died unexpectedly, shutting down executor. exit code -9\n"
DESCRIPTION = """Name:             chat-6b8d9f5c7-kx2vq
Namespace:        llm
Node:             gpu-4/10.0.0.14
Labels:           app=chat
Controlled By:    ReplicaSet/chat-6b8d9f5c7
Containers:
  vllm:
    Image:        vllm/vllm-openai:v0.10.2
    Last State:   Terminated
      Reason:     Error
      Exit Code:  137
Conditions:
  Type              Status
  Ready             False
"""
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata:
  labels:
    name: other
  name: chat
  namespace: llm
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.10.2
        env:
        - name: NCCL_DEBUG
          value: WARN
"""
POD = """apiVersion: v1
kind: Pod
metadata:
  name: chat-0
  namespace: llm
  ownerReferences:
  - apiVersion: apps/v1
    kind: StatefulSet
    name: chat
spec:
  containers:
  - name: vllm
    image: vllm/vllm-openai:v0.10.2
    args: ["--model", "org/name", "--port", "8080"]
"""
SLURM_KILL = "slurmstepd: error: Detected 1 oom_kill event in StepId=1234.0. Some of the step tasks have been OOM Killed.\n"
HIP = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 63.98 GiB of which 1.10 GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch.\n"


def commands(report: Report) -> Iterator[str]:
    for incident in report.incidents:
        yield from (step.command for step in incident.fix_steps if step.command)
        yield from incident.collect


def written(folder: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        paths.append(folder / name.replace("__", "."))
        paths[-1].write_text(text)
    return paths


def test_a_description_beside_the_log_fills_the_commands(tmp_path: Path) -> None:
    report = triage(written(tmp_path, pod__log=DEAD, describe__txt=DESCRIPTION))

    found = list(commands(report))
    assert "kubectl describe pod chat-6b8d9f5c7-kx2vq -n llm | grep -A 6 'Last State'" in found
    assert not [one for one in found if "POD" in one]


def test_a_description_pasted_behind_the_log_fills_the_commands(tmp_path: Path) -> None:
    report = triage(written(tmp_path, pod__log=DEAD + "\n" + DESCRIPTION))

    assert any("chat-6b8d9f5c7-kx2vq -n llm" in one for one in commands(report))


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("pod.log", "[pod/chat-0/vllm] " + DEAD, "kubectl logs chat-0 --previous"),
        (
            "pod.log",
            '{"log": "' + DEAD.strip() + '", "kubernetes": {"pod_name": "chat-0", "container_name": "vllm"}}\n',
            "kubectl logs chat-0 --previous",
        ),
        (
            "llm_chat-0_0f1e2d3c-1111-2222-3333-444455556666/0.log",
            DEAD,
            "kubectl logs chat-0 -n llm --previous",
        ),
    ],
)  # fmt: skip
def test_a_prefix_a_record_or_a_file_names_the_pod(
    tmp_path: Path, name: str, line: str, expected: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)

    assert any(expected in one for one in commands(triage(path)))


@pytest.mark.parametrize(("manifest", "workload"), [(DEPLOYMENT, "deployment"), (POD, "statefulset")])  # fmt: skip
def test_a_manifest_names_what_is_to_be_changed(
    tmp_path: Path, manifest: str, workload: str
) -> None:
    kill = "[9.1] Memory cgroup out of memory: Killed process 88 (python3) total-vm:9000kB, anon-rss:8000kB\n"
    report = triage(written(tmp_path, pod__log=kill, pod__yaml=manifest))

    assert any(
        f"kubectl set resources {workload}/chat -n llm --limits" in one for one in commands(report)
    )


def test_of_two_pods_none_is_guessed(tmp_path: Path) -> None:
    other = DESCRIPTION.replace("chat-6b8d9f5c7-kx2vq", "chat-6b8d9f5c7-zz9xw")
    report = triage(written(tmp_path, pod__log=DEAD, a__txt=DESCRIPTION, b__txt=other))

    assert report.root is not None
    dead = next(one for one in report.incidents if one.kind == "engine.dead")
    assert any("kubectl logs POD --previous" in (step.command or "") for step in dead.fix_steps)


def test_a_node_or_service_that_is_described_is_no_pod(tmp_path: Path) -> None:
    service = "Name:              chat\nNamespace:         llm\nLabels:            <none>\nSelector:          app=chat\nType:              ClusterIP\n"
    report = triage(written(tmp_path, pod__log=DEAD + service))

    assert any("kubectl logs POD --previous" in one for one in commands(report))


@pytest.mark.parametrize(
    ("name", "owner", "workload"),
    [
        ("chat-6b8d9f5c7-kx2vq", "", "deployment/chat"),
        ("chat-6b8d9f5c7-kx2vq", "ReplicaSet/chat-6b8d9f5c7", "deployment/chat"),
        ("chat-0", "StatefulSet/chat", "statefulset/chat"),
        ("chat-kx2vq", "Job/chat", None),
        ("chat-0", "", None),
        ("my-llama31-debug", "", None),
    ],
)
def test_a_pods_name_or_owner_tells_what_keeps_it_running(
    name: str, owner: str, workload: str | None
) -> None:
    assert pod(name, "llm", owner).workload == workload


def test_a_job_of_slurm_gets_no_kubectl(tmp_path: Path) -> None:
    for text in (
        SLURM_KILL,
        SLURM_KILL + DEAD,
        "srun: job 7 has been allocated resources\n" + KILLED,
    ):
        found = list(commands(triage(written(tmp_path, job__log=text))))

        assert not [one for one in found if one.startswith("kubectl describe pod POD |") or "kubectl set" in one]  # fmt: skip
        assert any(one.startswith(("sbatch", "sacct", "vllm-triage 'slurm")) for one in found)


def test_the_name_of_its_file_tells_a_job_of_slurm(tmp_path: Path) -> None:
    path = tmp_path / "slurm-4711.out"
    path.write_text(DEAD)

    assert "vllm-triage 'slurm-*.out'" in list(commands(triage(path)))


@pytest.mark.parametrize(
    "text",
    [
        HIP,
        "INFO 05-04 10:00:00 [__init__.py:241] Automatically detected platform rocm.\n"
        + HIP.replace("HIP", "CUDA"),
        "ROCM used to build PyTorch: 6.3.42134\n" + HIP.replace("HIP", "CUDA"),
    ],
)
def test_gpus_of_amd_get_their_own_tools(tmp_path: Path, text: str) -> None:
    found = list(commands(triage(written(tmp_path, pod__log=text))))

    assert "rocm-smi --showpids" in found
    assert not [one for one in found if "nvidia" in one]


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\n", "hl-smi"),
        (
            "RuntimeError: TPU initialization failed: open(/dev/accel0): Device or resource busy\n",
            "tpu-info",
        ),
        (
            "INFO 05-04 10:00:00 [__init__.py:241] Automatically detected platform xpu.\n"
            "RuntimeError: No XPU GPUs are available\n",
            "xpu-smi discovery",
        ),
        (
            "INFO 05-04 10:00:00 [__init__.py:241] Automatically detected platform npu.\n"
            "RuntimeError: No NPU devices are available\n",
            "npu-smi info",
        ),
    ],
)
def test_accelerators_of_other_makes_get_their_own_tools(
    tmp_path: Path, text: str, tool: str
) -> None:
    report = triage(written(tmp_path, pod__log=text))
    found = list(commands(report))

    assert report.root is not None
    assert report.root.kind == "gpu.driver"
    assert tool in found
    assert not [one for one in found if "nvidia" in one or "CUDA" in one]
    assert "cuda" not in (report.root.verify or "")


@pytest.mark.parametrize(
    "line",
    [
        "ROCM used to build PyTorch: N/A\n",
        "INFO 05-04 10:00:00 [__init__.py:241] Automatically detected platform cuda.\n",
    ],
)
def test_gpus_of_nvidia_keep_theirs(tmp_path: Path, line: str) -> None:
    found = list(commands(triage(written(tmp_path, pod__log=line + HIP.replace("HIP", "CUDA")))))

    assert any(one.startswith("nvidia-smi") for one in found)


def test_the_cards_that_hold_the_weights_are_of_the_make_in_the_log(tmp_path: Path) -> None:
    rows = "INFO 05-04 10:00:00 [utils.py:1] non-default args: {'model_tag': 'org/name-235B'}\n"
    shown = [triage(written(tmp_path, pod__log=rows + line)).root for line in (HIP, HIP.replace("HIP", "CUDA"))]  # fmt: skip

    assert all(root is not None and root.cards is not None for root in shown)
    amd, nvidia = (root.cards or "" for root in shown if root is not None)
    assert "4x MI300X 192 GB" in amd
    assert "A100" not in amd
    assert "MI300X" not in nvidia


def test_a_pod_gets_its_token_from_a_secret(tmp_path: Path) -> None:
    refused = "OSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/org/name.\n401 Client Error. (Request ID: Root=1-a)\n"
    report = triage(written(tmp_path, pod__log=refused, describe__txt=DESCRIPTION))

    found = [one for one in commands(report) if "hub-token" in one]
    assert found == ["kubectl create secret generic hub-token --from-literal=HF_TOKEN=$HF_TOKEN -n llm; kubectl set env deployment/chat -n llm --from=secret/hub-token"]  # fmt: skip
    assert not any("docker run" in one for one in commands(report))


def test_a_container_gets_the_commands_of_docker(tmp_path: Path) -> None:
    started = "$ docker run -d --gpus all vllm/vllm-openai:v0.10.2 --model org/name --port 8080\n"
    found = list(commands(triage(written(tmp_path, pod__log=started + DEAD))))

    assert "docker logs CONTAINER 2>&1 | vllm-triage" in found
    assert "docker run -e VLLM_LOGGING_LEVEL=DEBUG --gpus all vllm/vllm-openai:v0.10.2 --model org/name --port 8080 2>&1 | tee vllm.log" in found  # fmt: skip
    assert not any(one.startswith("kubectl") for one in found)


def test_a_compose_log_gets_the_commands_of_docker(tmp_path: Path) -> None:
    found = list(commands(triage(written(tmp_path, pod__log="vllm-1  | " + DEAD))))

    assert "docker logs CONTAINER 2>&1 | vllm-triage" in found
