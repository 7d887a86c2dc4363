"""What a model's files tell, alone and beside the run that serves the model."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_triage.artefacts.formats import format_of
from vllm_triage.artefacts.joins import joined, tell
from vllm_triage.artefacts.model_files import read
from vllm_triage.artefacts.observations import Observation, Value, line
from vllm_triage.echo_reader import EchoReader
from vllm_triage.kinds import Kind
from vllm_triage.pipeline import triage_paths
from vllm_triage.run import Run

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
}


def observations(name: str, text: str) -> list[Observation]:
    lines = [line(name, number, one) for number, one in enumerate(text.split("\n"), 1)]
    return list(read(lines).observations)


def values(config: dict[str, Any], name: str = "m/config.json") -> dict[str, Value]:
    return observations(name, json.dumps(config, indent=1))[0].values


def beside(run: Run, *configs: tuple[str, dict[str, Any]]) -> dict[str, Value]:
    found = [one for name, data in configs for one in observations(name, json.dumps(data))]
    return joined(found, run)[0].values


def served(**arguments: Any) -> Run:
    run = Run("vllm.log", 1)
    run.model, run.arguments = "/srv/models/m", arguments
    run.release.banner("0.10.2")
    return run


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({}, 4096),
        ({"n_positions": 1024}, 1024),
        ({"model_max_length": 8192}, 8192),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, 8192),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"rope_scaling": {"type": "longrope", "long_factor": [1.0]}}, 4096),
        (
            {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}},
            163840,
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 4096),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "model_type": "gemma3_text"}, 4096),
        ({"rope_scaling": {"factor": 8.0}}, None),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 8.0}}}, None),
        ({"max_position_embeddings": True}, None),
        ({"max_position_embeddings": "4096"}, None),
        ({"max_position_embeddings": -1}, None),
    ],
)  # fmt: skip
def test_the_longest_context_is_what_vllm_derives(
    config: dict[str, Any], longest: int | None
) -> None:
    assert values({**LLAMA, **config}).get("derived_max_model_len") == longest


@pytest.mark.parametrize(
    ("scaling", "is_advised"),
    [
        (None, True),
        ({"rope_type": "default"}, True),
        # Another scaling would replace what the model was trained with.
        ({"rope_type": "llama3", "factor": 8.0}, False),
        ({"type": "mrope", "mrope_section": [16, 24, 24]}, False),
    ],
)
@pytest.mark.parametrize(
    "failure",
    [
        "",
        "ValueError: User-specified max_model_len (8192) is greater than the derived max_model_len (max_position_embeddings=4096 or model_max_length=None in model's config.json).\n",
    ],
)
def test_rope_scaling_is_advised_with_the_models_numbers_where_it_has_none(
    tmp_path: Path, scaling: dict[str, Any] | None, is_advised: bool, failure: str
) -> None:
    log, config = tmp_path / "vllm.log", tmp_path / "config.json"
    log.write_text(
        "INFO 12-01 06:37:10 [api_server.py:1896] vLLM API server version 0.10.2\n"
        "INFO 12-01 06:37:10 [x.py:1] non-default args: {'model': '/srv/models/m', 'max_model_len': 8192}\n"
        + failure,
        "utf-8",
    )
    config.write_text(json.dumps({**LLAMA, "rope_scaling": scaling}, indent=2), "utf-8")

    root = triage_paths([log, config]).root

    assert root is not None
    assert root.kind is Kind.LOADING_CONTEXT_LENGTH
    commands = [step.command for step in root.fix_steps if step.command]
    numbers = '"factor": 2.0, "original_max_position_embeddings": 4096'
    assert any(numbers in one for one in commands) is is_advised
    assert any("original_max_position_embeddings" in one for one in commands) is is_advised


def test_the_heads_of_a_composite_model_are_those_of_its_language_model() -> None:
    text = {"num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000}
    for part in ("text_config", "llm_config", "language_config"):
        config = {"architectures": ["X"], "vision_config": {"num_heads": 16}, part: text}
        found = values(config)
        assert (found["num_heads"], found["num_kv_heads"]) == (28, 4)
        assert found["derived_max_model_len"] == 128000


def test_a_falcon_with_one_key_value_head_says_so_by_a_flag() -> None:
    falcon = {**LLAMA, "num_kv_heads": 71, "multi_query": True}

    assert values(falcon)["num_kv_heads"] == 1
    assert values({**falcon, "new_decoder_architecture": True})["num_kv_heads"] == 71


@pytest.mark.parametrize(
    ("heads", "kv_heads", "parallel", "left"),
    [
        (32, 8, 8, (0, 0)),
        (32, 8, 3, (2, None)),
        (40, 10, 4, (0, 2)),
        (40, 10, 5, (0, 0)),
        (32, 2, 8, (0, 0)),
        (36, 4, 6, (0, 2)),
        (32, 8, 1, (None, None)),
    ],
)
def test_heads_are_split_evenly_and_key_value_heads_split_or_repeated(
    heads: int, kv_heads: int, parallel: int, left: tuple[int | None, int | None]
) -> None:
    config = {**LLAMA, "num_attention_heads": heads, "num_key_value_heads": kv_heads}

    found = beside(served(tensor_parallel_size=parallel), ("m/config.json", config))

    assert (found.get("heads_left_over"), found.get("kv_heads_left_over")) == left


def test_latent_attention_has_no_key_value_heads_to_split() -> None:
    config = {**LLAMA, "num_key_value_heads": 10, "kv_lora_rank": 512}

    assert "kv_heads_left_over" not in beside(
        served(tensor_parallel_size=4), ("m/config.json", config)
    )


@pytest.mark.parametrize(("asked", "excess"), [(4096, 0), (4097, 1)])
def test_the_context_is_too_long_from_one_token_more(asked: int, excess: int) -> None:
    found = beside(served(max_model_len=asked), ("m/config.json", LLAMA))

    assert found["tokens_too_many"] == excess


def test_a_context_that_the_command_allows_is_not_too_long() -> None:
    run = served(max_model_len=99_999)
    run.echo = EchoReader().feed(
        "+ VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve /srv/models/m --max-model-len 99999"
    )

    assert run.echo is not None
    assert "tokens_too_many" not in beside(run, ("m/config.json", LLAMA))


@pytest.mark.parametrize(
    ("method", "given", "methods"),
    [
        ("awq", "awq_marlin", "agree"),
        ("awq", "gptq", "differ"),
        ("awq", "fp8", "differ"),
        ("gptq", "gptq_marlin", "agree"),
        ("gptq", "marlin", "agree"),
        ("gptq", "moe_wna16", "agree"),
        ("compressed_tensors", "compressed-tensors", "agree"),
        ("compressed-tensors", "fp8", "differ"),
        ("awq", "a-plugin", "agree"),
        ("a-plugin", "awq", None),
        (None, "awq", "none"),
        (None, "gptq_marlin", "none"),
        (None, "fp8", "agree"),
        (None, "bitsandbytes", "agree"),
    ],
)
def test_a_flag_contradicts_a_checkpoint_only_where_both_are_known(
    method: str | None, given: str, methods: str | None
) -> None:
    config = {**LLAMA, **({"quantization_config": {"quant_method": method}} if method else {})}

    found = beside(served(quantization=given), ("m/config.json", config))

    assert found.get("methods") == methods


def test_what_lies_in_another_file_of_the_folder_counts() -> None:
    files = ("m/config.json", LLAMA), ("m/quantize_config.json", {"bits": 4, "group_size": 128})

    found = beside(served(quantization="gptq"), *files)

    assert (found["methods"], found["config_method"]) == ("agree", "gptq")


@pytest.mark.parametrize(("gibibytes", "pct"), [(160, 100.0), (159, 99.375)])
def test_weights_are_held_against_the_cards_that_share_them(gibibytes: int, pct: float) -> None:
    index = {"metadata": {"total_size": gibibytes * 1024**3}, "weight_map": {}}
    run = served(tensor_parallel_size=2)
    run.memory.feed(
        (None, None),
        "Free memory on device (79.0/80.0 GiB) on startup. Desired GPU memory utilization is (0.9, 72.0 GiB).",
    )

    index_of = ("m/model.safetensors.index.json", index)
    config = {"architectures": ["X"], "torch_dtype": "bfloat16"}
    wide = {**config, "torch_dtype": "float32"}

    assert beside(run, index_of, ("m/config.json", config))["weights_of_card_pct"] == pct
    assert beside(run, index_of, ("m/config.json", wide))["weights_of_card_pct"] == pct / 2
    assert "weights_of_card_pct" not in beside(run, index_of)


@pytest.mark.parametrize(
    ("config", "whole"),
    [
        # Llama-2-7B, Llama-3.1-8B and Qwen2.5-0.5B; their cards say 6.74, 8.03 and 0.49 billion.
        ({"hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 32000, "num_hidden_layers": 32,
          "num_key_value_heads": 32}, 6.738e9),
        ({"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256, "num_hidden_layers": 32}, 8.030e9),
        ({"hidden_size": 896, "intermediate_size": 4864, "vocab_size": 151936, "num_hidden_layers": 24,
          "num_attention_heads": 14, "num_key_value_heads": 2, "model_type": "qwen2", "tie_word_embeddings": True},
         0.494e9),
        ({"hidden_size": 4096, "vocab_size": 32000, "num_hidden_layers": 32}, None),
        ({"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 32000, "model_type": "mixtral"}, None),
    ],
)  # fmt: skip
def test_the_weights_of_a_dense_model_follow_from_its_shapes(
    config: dict[str, Any], whole: float | None
) -> None:
    size = values({**LLAMA, **config}).get("estimated_bytes")

    assert size == (pytest.approx(2 * whole, rel=0.001) if whole else None)


def test_the_card_may_be_shown_by_a_listing(tmp_path: Path) -> None:
    """141 GB of weights on a card that `nvidia-smi` says has 80 GiB, where the log says nothing of it."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
    }
    index = {"metadata": {"total_size": 141_107_412_992}, "weight_map": {}}
    listing = "index, name, memory.total [MiB]\n0, NVIDIA A100-SXM4-80GB, 81920 MiB\n"
    log = (
        "INFO 12-01 06:37:10 [x.py:1] vLLM API server version 0.10.2\n"
        "INFO 12-01 06:37:10 [x.py:1] non-default args: {'model': '/srv/models/m'}\n"
    )
    files = {"config.json": json.dumps(config), "model.safetensors.index.json": json.dumps(index),
             "gpus.csv": listing, "vllm.log": log}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")

    with_card = triage_paths([tmp_path / name for name in files])
    without = triage_paths([tmp_path / name for name in files if name != "gpus.csv"])

    assert [one.kind for one in with_card.incidents] == [Kind.OOM_LOAD]
    assert with_card.incidents[0].confidence == "likely"
    assert without.incidents == ()


@pytest.mark.parametrize("name", ["quantization", "cpu_offload_gb", "load_format", "dtype"])
def test_weights_that_are_changed_while_they_load_are_not_held_against_a_card(name: str) -> None:
    index = {"metadata": {"total_size": 1 << 50}, "weight_map": {}}
    config = {"architectures": ["X"], "torch_dtype": "bfloat16"}
    run = served(**{name: "fp8"})
    run.memory.feed(
        (None, None), "Initial free memory: 79.0 GiB; Requested memory: 0.9 (util), 72.0 GiB"
    )

    found = beside(run, ("m/model.safetensors.index.json", index), ("m/config.json", config))

    assert "weights_of_card_pct" not in found


def test_a_run_that_came_further_than_the_checks_has_passed_them() -> None:
    config = {**LLAMA, "num_attention_heads": 12, "auto_map": {"AutoConfig": "x.Y"}}
    given = {"tensor_parallel_size": 8, "max_model_len": 1 << 20, "quantization": "awq"}
    told = {"heads_left_over", "kv_heads_left_over", "tokens_too_many", "methods"}
    serving, printed, overridden = served(**given), served(**given), served(**given)
    serving.was_serving = True
    printed.config["model"] = "/srv/models/m"
    overridden.arguments["hf_overrides"] = '{"num_attention_heads": 16}'

    assert told & beside(served(**given), ("m/config.json", config)).keys() == told - {
        "kv_heads_left_over"
    }
    for run in (serving, printed, overridden):
        assert not told & beside(run, ("m/config.json", config)).keys()


def test_code_of_a_repository_is_needed_only_where_the_release_is_known_to_lack_the_class() -> (
    None
):
    remote = {**LLAMA, "architectures": ["TinyLM"], "auto_map": {"AutoConfig": "x.TinyConfig"}}
    newer = served(port=1)
    newer.release = type(newer.release)()
    newer.release.banner("0.32.0")

    assert beside(served(port=1), ("m/config.json", remote))["trusts_remote_code"] == "no"
    assert "trusts_remote_code" not in beside(newer, ("m/config.json", remote))
    native = {**remote, "architectures": ["InternVLChatModel"]}
    assert "trusts_remote_code" not in beside(served(port=1), ("m/config.json", native))


def test_of_several_models_the_one_that_the_run_names_is_its_own() -> None:
    other = {**LLAMA, "num_attention_heads": 7}
    found = [
        *observations("x/other/config.json", json.dumps(other)),
        *observations("x/m/config.json", json.dumps(LLAMA)),
    ]
    named, unnamed = served(), served()
    unnamed.model = "org/unknown"

    tell(named, found)
    tell(unnamed, found)

    assert named.observed["model_num_heads"] == 32
    assert "model_num_heads" not in unnamed.observed


def test_a_cached_model_of_the_hub_is_told_by_its_folder() -> None:
    base = "hub/models--org--name/snapshots/0a1b/config.json"
    run = served()
    run.model = "org/name"

    tell(run, [*observations("x/config.json", json.dumps(LLAMA)),
               *observations(base, json.dumps({**LLAMA, "num_attention_heads": 7}))])  # fmt: skip

    assert run.observed["model_num_heads"] == 7


@pytest.mark.parametrize(
    "text",
    [
        '{"log":"INFO 12-01 06:37:10 [x.py:1] hi\\n","stream":"stdout","time":"2026-01-01T00:00:00Z"}\n' * 3,
        '{"message": "architectures", "level": "info"}\n{"message": "x", "level": "info"}\n',
        json.dumps(LLAMA, indent=2) + "\nINFO 12-01 06:37:10 [x.py:1] Starting\n",
        json.dumps(LLAMA, indent=2)[:60] + "\nTraceback (most recent call last):\n",
        json.dumps(LLAMA) + "\n" + json.dumps(LLAMA) + "\n",
        '{"object": "list", "data": [{"id": "m", "max_model_len": 4096}]}',
        '{"model_id": "m", "tokenizer_id": "m", "request_rate": 1.0, "mean_ttft_ms": 3.0}',
        "[]",
        "{}",
    ],
)  # fmt: skip
def test_other_json_and_logs_are_no_model_files(text: str) -> None:
    found = format_of(text)

    assert found is None or found.module != "model_files"


def test_a_long_file_is_told_by_its_beginning() -> None:
    weights = {
        f"model.layers.{index}.weight": "model-00001-of-00002.safetensors" for index in range(4000)
    }
    text = json.dumps({"metadata": {"total_size": 7}, "weight_map": weights}, indent=2)

    found = format_of(text[:65_536])

    assert found is not None
    assert found.module == "model_files"
    assert observations("index", text)[0].values["checkpoint_bytes"] == 7


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "generation_config.json"]
)
def test_a_broken_file_is_an_incident_only_where_a_server_needs_it(
    name: str, tmp_path: Path
) -> None:
    keys = {
        "config.json": '"architectures": ["X"]',
        "tokenizer_config.json": '"tokenizer_class": "X"',
        "generation_config.json": '"_from_model_config": true',
    }
    path = tmp_path / name
    path.write_text("{\n  " + keys[name] + ',\n  "a": 1\n  "b": 2\n}\n', "utf-8")

    report = triage_paths([path])

    kinds = [Kind.LOADING_CONFIG_INVALID] if name != "generation_config.json" else []
    assert [one.kind for one in report.incidents] == kinds
    assert report.sources[0].problem is not None
    assert "line 4" in report.sources[0].problem


def test_a_file_that_is_cut_is_no_incident_beside_a_server_that_answers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA, indent=1)[:80], "utf-8")
    log = "INFO 12-01 06:37:10 [x.py:1] vLLM API server version 0.10.2\nINFO:     Application startup complete.\n"
    (tmp_path / "vllm.log").write_text(log, "utf-8")

    assert triage_paths([tmp_path / "config.json", tmp_path / "vllm.log"]).incidents == ()
    assert len(triage_paths([tmp_path / "config.json"]).incidents) == 1


def test_a_folder_of_a_model_gives_its_small_files_and_its_logs(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    (folder / "original").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA), "utf-8")
    (folder / "tokenizer.json").write_text('{"version": "1.0"}', "utf-8")
    (folder / "modeling_m.py").write_text('raise ValueError("CUDA out of memory")', "utf-8")
    (folder / "README.md").write_text("torch.OutOfMemoryError: CUDA out of memory\n", "utf-8")
    (folder / "merges.txt").write_text("a b\n", "utf-8")
    (folder / "original" / "params.json").write_text('{"dim": 1}', "utf-8")
    (folder / "serve.log").write_text("INFO 12-01 06:37:10 [x.py:1] hi\n", "utf-8")
    header = (
        b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    )
    header = header.ljust(9000)
    (folder / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + b"abcd"
    )

    report = triage_paths([folder])

    assert [Path(one.name).name for one in report.sources] == ["config.json", "serve.log"]
    assert report.incidents == ()


def test_a_folder_of_logs_beside_a_config_is_read_in_full(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("config.json", "notes", "logs/vllm"):
        (tmp_path / name).write_text(json.dumps(LLAMA) if "." in name else "hi\n", "utf-8")

    report = triage_paths([tmp_path])

    assert len(report.sources) == 3


_LEAF = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8)
_FLAT = _LEAF | st.lists(_LEAF, max_size=3)
_JSON = _FLAT | st.dictionaries(
    st.text(max_size=4),
    _FLAT | st.dictionaries(st.text(max_size=4), _FLAT, max_size=2),
    max_size=3,
)
_KEYS = st.sampled_from(
    [
        *LLAMA, "quantization_config", "rope_scaling", "rope_parameters", "auto_map", "text_config",
        "model_max_length", "weight_map", "metadata", "bits", "group_size", "tokenizer_class", "producer",
        "quantization", "n_layers", "n_heads", "dim", "quant_method", "kv_lora_rank", "multi_query",
    ]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    data=st.dictionaries(_KEYS, _JSON, max_size=8),
    cut=st.integers(0, 300),
    arguments=st.dictionaries(
        st.sampled_from(["tensor_parallel_size", "max_model_len", "quantization"]),
        st.floats() | st.integers() | st.text(max_size=4),
    ),
)
def test_no_file_breaks_the_reader_or_the_comparison(
    data: dict[str, Any], cut: int, arguments: dict[str, Any]
) -> None:
    whole = json.dumps({**data, "architectures": data.get("architectures", ["X"])}, indent=1)
    for text in (whole, whole[:cut], whole[: len(whole) - cut]):
        found = observations("m/config.json", text)
        run = served(**arguments)
        tell(run, found)
        for one in joined(found, run):
            assert all(isinstance(value, str | int | float) for value in one.values.values())


@pytest.mark.parametrize(
    "text",
    [
        '{"architectures": ["X"], "a": ' + "[" * 100_000,
        '{"architectures": ["X"], "a": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"architectures": ["X"], "num_attention_heads": ' + "9" * 10_000 + "}",
        '{"architectures": ["X"], "num_attention_heads": 1e999, "max_position_embeddings": NaN}',
        '{"architectures": ["X"], "architectures": "Y", "num_attention_heads": 0}',
        '{"architectures": ["' + "X" * 1_000_000 + '"]}',
    ],
)
def test_hostile_files_give_no_number_that_is_none(text: str) -> None:
    found = observations("m/config.json", text)

    for one in joined(found, served(tensor_parallel_size=2, max_model_len=8)):
        assert "heads_left_over" not in one.values or one.values["num_heads"]
        assert len(str(one.values.get("architecture"))) <= 200


def test_a_config_of_one_line_is_shown_around_the_key_that_proves_it(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        **{f"filler_{n}": n for n in range(90)},
        **LLAMA,
    }
    (tmp_path / "config.json").write_text(json.dumps(config, separators=(",", ":")), "utf-8")
    (tmp_path / "vllm.log").write_text(
        "INFO 10-02 10:00:00 [utils.py:328] non-default args: {'model': 'org/m', 'tensor_parallel_size': 3}\n",
        "utf-8",
    )

    root = triage_paths([tmp_path / "config.json", tmp_path / "vllm.log"]).root

    assert root is not None
    first = root.evidence[0]
    assert '"num_attention_heads":32' in first.text
    assert first.text.startswith("… ")
    assert len(first.text) < 200


def test_a_broken_config_of_one_line_is_shown_where_it_breaks(tmp_path: Path) -> None:
    text = json.dumps({**{f"filler_{n}": n for n in range(90)}, **LLAMA})
    path = tmp_path / "config.json"
    path.write_text(text.replace('"num_hidden_layers": 2,', '"num_hidden_layers": 2'), "utf-8")

    report = triage_paths([path])

    assert report.root is not None
    assert '"num_hidden_layers": 2 "max_position' in report.root.evidence[0].text
    assert "line 1, column" in str(report.sources[0].problem)
