"""Answers of the API, curl's transcripts and descriptions of pods: what is read of them, whole or not."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage.artefacts import answers, collect_env, pods, transcripts
from vllm_triage.artefacts.formats import format_of
from vllm_triage.artefacts.observations import Observation, line
from vllm_triage.pipeline import triage_paths

MODELS = {
    "object": "list",
    "data": [
        {
            "id": "chat",
            "object": "model",
            "root": "org/name",
            "parent": None,
            "max_model_len": 4096,
        },
        {"id": "lora", "object": "model", "root": "/adapters/x", "parent": "chat"},
    ],
}
CURL = """* Connected to localhost (127.0.0.1) port 8000 (#0)
> GET /health HTTP/1.1
>
< HTTP/1.1 200 OK
< server: uvicorn
<
> POST /v1/completions?x=1 HTTP/1.1
< HTTP/1.1 100 Continue
< HTTP/1.1 404 Not Found
< server: uvicorn
"""


def observed(module: object, text: str) -> list[Observation]:
    rows = [line("x", number, row) for number, row in enumerate(text.split("\n"), 1)]
    return list(module.read(rows).observations)  # type: ignore[attr-defined]


def test_the_models_tell_the_run_its_model_and_length() -> None:
    (found,) = observed(answers, json.dumps(MODELS, indent=2))

    assert (found.subject, found.values) == ("run", {"model": "org/name", "max_model_len": 4096})


def test_several_answers_in_a_file_are_each_read() -> None:
    found = observed(answers, json.dumps(MODELS) + '\n\n{"version":"0.10.2"}\n')

    assert [one.values for one in found] == [
        {"model": "org/name", "max_model_len": 4096},
        {"vllm_version": "0.10.2"},
    ]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(MODELS) + "\nINFO 12-01 10:00:00 [x.py:1] a log goes on",
        '{"object":"error","message":"no","type":"NotFoundError","code":404}',
        '{"level":"ERROR","message":"x"}\n{"level":"ERROR","message":"y"}',
        '{"version":"1","other":2}',
        '{"object":"list","data":[]}',
        "{",
        "[1]",
        "data: x",
        "Name: vllm\nVersion: 0.10.2",
        "HTTP Error 503",
        "* note",
    ],
)
def test_what_is_none_of_them_stays_a_log(text: str) -> None:
    assert format_of(text) is None


def test_a_long_completion_is_known_by_its_beginning() -> None:
    text = json.dumps({"id": "cmpl-1", "object": "text_completion", "choices": ["x" * 100_000]})

    assert format_of(text[:65_536]) is not None


def test_an_answer_that_is_cut_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text('{"version":"0.10.2"}\n' + json.dumps(MODELS)[:-20], "utf-8")

    (source,) = triage_paths([path]).sources

    assert source.format == "api-answer"
    assert source.problem == f"{path}: ends in the middle of an answer"


def test_each_answer_of_a_transcript_has_its_endpoint() -> None:
    found = [one.values for one in observed(transcripts, CURL)]

    assert found == [
        {"status_code": 200, "endpoint": "/health", "server": "uvicorn"},
        {"status_code": 404, "endpoint": "/v1/completions", "server": "uvicorn"},
    ]


def test_a_container_is_what_it_last_died_of() -> None:
    text = (
        "Name: a\nNamespace: b\nContainers:\n  one:\n    Image: vllm/vllm-openai:v0.9.1\n    State: Waiting\n"
        "      Reason: CrashLoopBackOff\n    Last State: Terminated\n      Reason: Error\n      Exit Code: 134\n"
        "    Restart Count: 7\n  two:\n    Image: envoy:v1\n    State: Running\nVolumes:\n  one:\n    Reason: no\n"
    )

    release, one, two = observed(pods, text)

    assert release.values == {"vllm_version": "0.9.1"}
    assert one.values == {
        "container": "one", "unit": "a", "image": "vllm", "waiting": "CrashLoopBackOff",
        "reason": "Error", "exit_code": 134, "restarts": 7,
    }  # fmt: skip
    assert two.values == {"container": "two", "unit": "a"}


@pytest.mark.parametrize("gap", ["              ", ""])
def test_the_machine_tells_the_releases_and_the_gpus(gap: str) -> None:
    text = f"PyTorch version{gap}: 2.8.0+cu128\nCUDA used to build PyTorch: 12.8\nNvidia driver version{gap}: Could not collect\nGPU models and configuration{gap}: GPU 0: NVIDIA A\nGPU 1: NVIDIA A\nvLLM Version{gap}: 0.10.2\n"

    (found,) = observed(collect_env, text)

    assert found.values == {
        "torch_version": "2.8.0+cu128",
        "visible_gpus": 2,
        "vllm_version": "0.10.2",
    }


HOSTILE = st.lists(
    st.sampled_from([*CURL.split("\n"), *json.dumps(MODELS, indent=1).split("\n"), "{" * 50, "[" * 2000, "\x00", "data:", "Exit Code: 99999999999999", "Containers:", "  a:", "    Last State:", "NaN", '{"version":"' + "9" * 500 + '"}'])
    | st.text(max_size=40),
    max_size=40,
)  # fmt: skip


@given(HOSTILE)
def test_no_file_breaks_a_reader(rows: list[str]) -> None:
    text = "\n".join(rows)

    format_of(text)
    for module in (answers, transcripts, pods, collect_env):
        observed(module, text)


PENDING = """Name:             vllm-0
Namespace:        llm
Node:             <none>
Status:           Pending
Containers:
  vllm:
    Image:      registry.local/llm:1
    Limits:
      nvidia.com/gpu:  4
Events:
  Type     Reason            Age   From               Message
  ----     ------            ----  ----               -------
  Warning  FailedScheduling  4m    default-scheduler  0/3 nodes are available: 1 Insufficient memory, 2 Insufficient nvidia.com/gpu.
"""


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ("", "Insufficient memory, Insufficient nvidia.com/gpu"),
        ("  Normal   TriggeredScaleUp  3m  cluster-autoscaler  pod triggered scale-up: [{gpu 0->1 (max: 4)}]\n", None),
        ("  Normal   Scheduled         3m  default-scheduler  Successfully assigned llm/vllm-0 to gpu-1\n", None),
        ("  Warning  FailedScheduling  1m  default-scheduler  0/3 nodes are available: 3 node(s) had untolerated taint {gpu: only}.\n",
         "0/3 nodes are available: 3 node(s) had untolerated taint {gpu: only}"),
    ],
)  # fmt: skip
def test_a_pod_without_a_node_is_not_started(
    tmp_path: Path, last: str, reason: str | None
) -> None:
    path = tmp_path / "describe.txt"
    path.write_text(PENDING + last, "utf-8")

    root = triage_paths([path]).root

    assert getattr(root and root.facts, "reason", None) == reason


def test_the_events_say_why_an_image_is_missing_where_they_are_there(tmp_path: Path) -> None:
    text = PENDING.replace("Pending", "Running").replace(
        "registry.local/llm:1", "vllm/vllm-openai:v99"
    )
    text = text.replace(
        "    Limits:",
        "    State:          Waiting\n      Reason:       ImagePullBackOff\n    Limits:",
    )
    full = "  Warning  Failed  2m  kubelet  Failed to pull image: write /var/lib/containerd/x: no space left on device\n"
    path = tmp_path / "describe.txt"
    path.write_text(text.partition("Events:")[0], "utf-8")
    alone = triage_paths([path]).root
    path.write_text(text.partition("Events:")[0] + "Events:\n" + full, "utf-8")
    beside = triage_paths([path]).root

    assert alone is not None
    assert alone.kind.value == "config.invalid_argument"
    assert getattr(alone.facts, "value", None) == "vllm/vllm-openai:v99"
    assert beside is not None
    assert beside.kind.value == "host.disk_full"
