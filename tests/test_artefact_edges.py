"""Rows, columns and answers of artefacts that are rare, damaged or too many."""

import json
from typing import Any

import pytest

from tests.test_artefact_benchmarks import RESULT
from tests.test_artefact_benchmarks import of as benchmarks
from tests.test_artefact_gpus import gpus, told
from tests.test_environment import observations as environment
from tests.test_scrapes import observed
from vllm_triage.artefacts import answers, manifests, model_files
from vllm_triage.artefacts.observations import Reading, line
from vllm_triage.lines import Line


def rows(text: str) -> list[Line]:
    return [line("x", number, one) for number, one in enumerate(text.split("\n"), 1)]


QUERY = "index, name, pci.bus_id, memory.free [MiB], memory.total [MiB], utilization.gpu [%]"


def query(columns: str, *values: str) -> list[dict[str, Any]]:
    """GPU 0 in what `nvidia-smi --query-gpu` prints with these columns besides."""
    return gpus("\n".join([f"index, name, {columns}", *(f"{n}, NVIDIA L4, {one}" for n, one in enumerate(values))]))  # fmt: skip


def test_a_queried_gpu_has_its_address_and_what_is_not_free_is_used() -> None:
    (one,) = gpus(f"{QUERY}\n0, NVIDIA L4, 00000000:10:1C.0, 1024 MiB, 4096 MiB, 7 %")

    assert one["pci"] == "00000000:10:1C.0"
    assert one["gpu_memory_used_pct"] == 75.0
    assert one["total_bytes"] == 4 * 1024**3


@pytest.mark.parametrize(
    ("column", "bad", "good", "name", "value"),
    [
        ("retired_pages.pending", "Yes", "No", "retirement", "pending"),
        ("remapped_rows.pending", "Yes", "No", "remapping", "pending"),
        ("remapped_rows.pending", "1", "0", "remapping", "pending"),
        ("remapped_rows.failure", "1", "0", "remapping", "failed"),
        ("ecc.errors.uncorrected.volatile.total", "2", "[N/A]", "ecc_errors", 2),
        ("gpu_recovery_action", "Reset", "None", "recovery_action", "Reset"),
    ],
)
def test_a_column_that_tells_of_a_fault_is_read(
    column: str, bad: str, good: str, name: str, value: object
) -> None:
    one, other = query(f"utilization.gpu [%], {column}", f"0 %, {bad}", f"0 %, {good}")

    assert one[name] == value
    assert other.get(name) in (None, "None")


def test_headings_that_come_again_are_no_rows() -> None:
    text = f"{QUERY}\n0, NVIDIA L4, 00000000:10:1C.0, 1024 MiB, 4096 MiB, 7 %"
    again = f"{text}\n{QUERY}\n0, NVIDIA L4, 00000000:10:1C.0, 1024 MiB, 4096 MiB, 9 %"

    assert [one["gpu_samples"] for one in gpus(again)] == [2]


def test_errors_that_dmon_counts_are_read() -> None:
    head = "# gpu   sm   mem   fb   sbecc  dbecc\n# Idx   %   %   MB   errs   errs\n"

    one, other = gpus(head + "    0   10   1   100   0   3\n    1   10   1   100   0   -\n")

    assert one["ecc_errors"] == 3
    assert "ecc_errors" not in other


def test_the_fullest_sample_of_a_gpu_holds_and_many_programs_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vllm_triage.artefacts.gpus._MAX_SAMPLES", 2)
    head = "index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n"

    (one,) = gpus(head + "\n".join(f"0, NVIDIA L4, {used} MiB, 1000 MiB, 5 %" for used in (100, 900, 300)))  # fmt: skip

    assert one["gpu_memory_used_pct"] == 90.0
    assert one["gpu_samples"] == 2


SCRAPE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="org/name"}} 3
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{model_name="org/name"}} 5
# TYPE vllm:time_to_first_token_seconds histogram
{}
vllm:time_to_first_token_seconds_count{{model_name="org/name"}} 10
vllm:time_to_first_token_seconds_sum{{model_name="org/name"}} 5
"""


def bucket(bound: str, count: int) -> str:
    return f'vllm:time_to_first_token_seconds_bucket{{le="{bound}",model_name="org/name"}} {count}'


def test_a_bucket_without_a_bound_or_with_a_negative_one_is_left_out() -> None:
    good = "\n".join([bucket("0.5", 4), bucket("1.0", 10), bucket("+Inf", 10)])
    odd = "\n".join([bucket("often", 99), bucket("-1", 99), good])

    assert observed(SCRAPE.format(odd))[0].values == observed(SCRAPE.format(good))[0].values


def test_engines_and_histograms_of_a_scrape_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    scrape = SCRAPE.format(bucket("+Inf", 10))
    many = scrape + scrape.replace("org/name", "b") + scrape.replace("org/name", "c")
    assert len([one for one in observed(many) if one.subject == "metrics"]) == 3

    monkeypatch.setattr("vllm_triage.artefacts.prometheus._MAX_ENGINES", 2)
    assert len([one for one in observed(many) if one.subject == "metrics"]) == 2
    monkeypatch.setattr("vllm_triage.artefacts.prometheus._MAX_KINDS", 0)
    (one, _) = [one for one in observed(many) if one.subject == "metrics"]
    assert one.values["running"] == 3
    assert not any("ttft" in name for name in one.values)


def of_subject(text: str) -> list[dict[str, Any]]:
    return [one.values for one in benchmarks(text).observations if one.subject == "benchmark"]


def test_a_latency_benchmark_is_one_and_its_results_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "Avg latency: 1.5 seconds\n10% percentile latency: 1.4 seconds\n99% percentile latency: 2.5 seconds\n"
    (one,) = of_subject(text)
    assert one["benchmark"] == "latency"

    many = "\n".join(json.dumps(RESULT) for _ in range(5))
    assert len(of_subject(many)) == 5
    monkeypatch.setattr("vllm_triage.artefacts.benchmarks._MAX_RESULTS", 3)
    assert len(of_subject(many)) == 3


def test_a_benchmark_with_a_number_beyond_all_numbers_keeps_the_rest() -> None:
    (one,) = of_subject(json.dumps({**RESULT, "duration": 10**400}))

    assert one["output_tokens_per_s"] == 1280.0
    assert "duration_s" not in one


MODELS = {"object": "list", "data": [{"id": "org/name", "object": "model", "max_model_len": 4096}]}


def asked(*documents: object) -> Reading:
    return answers.read(rows("\n".join(json.dumps(one) for one in documents)))


def test_answers_end_where_something_else_stands() -> None:
    assert answers.fits(json.dumps(MODELS))
    assert not answers.fits(json.dumps(MODELS) + "\n[1]")
    assert not answers.fits(json.dumps([MODELS]))
    assert [one.values for one in asked(MODELS).observations] == [
        {"model": "org/name", "max_model_len": 4096}
    ]


def test_an_answer_that_names_no_model_or_length_tells_none() -> None:
    nameless = {"object": "list", "data": [{"id": "", "object": "model", "max_model_len": None}]}

    assert asked(nameless).observations == ()
    assert asked({"version": "0.10.2"}, nameless).observations[0].values == {
        "vllm_version": "0.10.2"
    }


def test_answers_and_model_files_that_are_too_long_are_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vllm_triage.artefacts.answers._MAX_TEXT", 50)
    monkeypatch.setattr("vllm_triage.artefacts.model_files._MAX_CHARS", 50)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096}

    assert (
        asked(MODELS).problem == "is too long for answers of a server; keep one answer in a file"
    )
    assert model_files.read(rows(json.dumps(config))).problem == "is too large for a model file"


POD = """apiVersion: v1
kind: Pod
metadata:
  name: vllm
spec:
  containers:
  - name: server
    command: ["vllm", "serve"]
    args:
    - org/name
    - --max-model-len=4096
    # what fits
    - --served-model-name
    - a name
      of two lines
    env:
    - name: VLLM_HOST_IP
      value: 10.0.0.1
    - value: nameless
"""


def test_an_argument_may_have_several_lines_and_a_comment_below_it() -> None:
    run = next(one for one in environment(POD, manifests) if one.subject == "run")

    assert run.values["--max_model_len"] == "4096"
    assert run.values["--served_model_name"] == "a name of two lines"


def arguments(text: str) -> dict[str, str | float]:
    runs = [one.values for one in environment(text, manifests) if one.subject == "run"]
    return {name: value for run in runs for name, value in run.items() if name.startswith("--")}


def test_a_list_of_words_that_is_broken_holds_none() -> None:
    broken = POD.replace('["vllm", "serve"]', '["vllm", "serve')
    bare = broken.partition("    args:")[0]

    assert "4096" in arguments(broken).values()
    assert arguments(bare) == {}


def test_a_container_of_docker_may_have_variables_without_a_value() -> None:
    one = {"Name": "/vllm", "Path": "vllm", "Args": ["serve", "org/name"], "HostConfig": {}, "Config": {"Env": ["PLAIN", "VLLM_HOST_IP=10.0.0.1"]}}  # fmt: skip

    found = environment(json.dumps([one]), manifests)

    assert "10.0.0.1" in str(found)
    assert "PLAIN" not in str(found)


def test_a_manifest_nested_without_end_is_left() -> None:
    deep: object = {"containers": [{"name": "x", "command": ["vllm", "serve", "org/name"]}]}
    for _ in range(200):
        deep = [deep]

    assert environment(json.dumps(deep), manifests) == ()


def test_nothing_is_told_of_a_gpu_whose_rows_are_all_damaged() -> None:
    assert told(f"{QUERY}\nGPU is lost") == {}
