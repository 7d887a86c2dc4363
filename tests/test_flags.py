"""The flags of the releases, what is near them, and what became of those that are gone."""

import json

import pytest

from vllm_triage import Incident, flags, triage
from vllm_triage.command_check import problems

NEWEST = flags.releases()[-1]


def refused(line: str, *before: str) -> Incident:
    root = triage(iter([*before, line])).root
    assert root is not None
    return root


@pytest.mark.parametrize(
    ("flag", "version", "wanted"),
    [
        ("--max-model-length", None, "--max-model-len"),
        ("--enable-prefix-cache", "0.6.3", "--enable-prefix-caching"),
        ("--max_model_len", "0.4.3", "--max-model-len"),
        ("--quantisation", "0.3.3", "--quantization"),
        ("--frobnicate", None, None),
    ],
)
def test_the_nearest_flag_is_one_of_the_release(
    flag: str, version: str | None, wanted: str | None
) -> None:
    assert flags.nearest(flag, version) == wanted


@pytest.mark.parametrize(
    ("flag", "value", "version", "words"),
    [
        ("--task", "embed", "0.13.0", ("--runner", "pooling")),
        ("--task", "generate", None, ("--runner", "generate")),
        ("--guided-decoding-backend", "xgrammar", "0.11.0", ("--structured-outputs-config", '{"backend": "xgrammar"}')),
        ("--disable-log-requests", None, "0.17.1", ()),
        ("--swap-space", "4", "0.18.1", ()),
        ("--num-scheduler-steps", "8", "0.11.0", ()),
        ("--worker-use-ray", None, "0.8.5", ("--distributed-executor-backend", "ray")),
        ("--rope-scaling", '{"rope_type": "yarn"}', "0.11.2", ("--hf-overrides", '{"rope_scaling": {"rope_type": "yarn"}}')),
        ("--num-speculative-tokens", "5", "0.8.5", ()),
        ("--num-speculative-tokens", "5", "0.22.1", ("--spec-tokens", "5")),
        ("--mem-fraction-static", "0.8", None, ("--gpu-memory-utilization", "0.8")),
    ],
)  # fmt: skip
def test_a_renamed_flag_has_its_modern_form(
    flag: str, value: str | None, version: str | None, words: tuple[str, ...]
) -> None:
    found = flags.successor(flag, value, version)

    assert found is not None
    assert found.words == words


@pytest.mark.parametrize(("flag", "version"), [("--task", "0.12.0"), ("--speculative-model", "0.7.3"), ("--frobnicate", None)])  # fmt: skip
def test_a_flag_that_the_release_accepts_has_no_successor(flag: str, version: str | None) -> None:
    assert flags.successor(flag, None, version) is None


FORMS = list(flags.renamed())


@pytest.mark.parametrize(
    ("index", "old"), [pytest.param(i, form[0], id=f"{form[0]}-{form[1]}") for i, form in enumerate(FORMS)]
)  # fmt: skip
def test_a_successor_exists_in_every_release_that_it_is_for(index: int, old: str) -> None:
    _, since, new, value = FORMS[index]
    following = FORMS[index + 1] if index + 1 < len(FORMS) else None
    until = following[1] if following is not None and following[0] == old else None
    spans = [one for one in flags.releases(since) if until is None or one not in flags.releases(until)]  # fmt: skip

    if new is not None and since is not None:
        assert [one for one in spans if not flags.accepts(new, one) and not flags.accepts(old, one)] == []  # fmt: skip
    assert not flags.is_known(old) or any(not flags.accepts(old, one) for one in spans)
    if value and value.startswith("{{"):
        found = flags.successor(old, "1", since)
        assert found is None or isinstance(json.loads(found.words[1]), dict)


@pytest.mark.parametrize(
    ("flag", "version", "wanted"),
    [("--runner", "0.9.2", "0.10.2"), ("--runner", "0.11.0", None), ("--task", "0.13.0", None), ("--frobnicate", "0.9.2", None)],
)  # fmt: skip
def test_a_flag_that_came_later_is_told(flag: str, version: str, wanted: str | None) -> None:
    assert flags.came_with(flag, version) == wanted


def test_a_misspelt_flag_is_corrected_in_the_own_command() -> None:
    found = refused(
        "vllm: error: unrecognized arguments: --max-model-length 512",
        "$ vllm serve org/model --max-model-length 512 --port 9000",
    )

    assert found.fix_steps[0].command == found.suggested_command
    assert found.suggested_command == "vllm serve org/model --port 9000 --max-model-len 512"


def test_a_refused_value_has_the_nearest_that_is_allowed() -> None:
    found = refused(
        "vllm serve: error: argument --dtype: invalid choice: 'float17' (choose from 'auto', 'bfloat16', 'float16')"
    )

    assert found.fix_steps[0].do == "Write `--dtype float16` in the place of `--dtype float17`."


@pytest.mark.parametrize(
    ("text", "since", "until", "told"),
    [
        ("vllm serve {model:M} --speculative-model D", "0.4.3", "0.8.0", ""),
        ("vllm serve {model:M} --speculative-model D", "0.4.3", None, "0.8.5"),
        ("vllm serve {model:M} --disable-flash-attn", None, None, "--disable-flash-attn"),
        ("docker run --gpus all vllm/vllm-openai:latest --model X --task embed", None, "0.12.0", "--task"),
        ("vllm serve M --dtype float17", None, None, "float17"),
        ("vllm serve M --dtype {dtype:float17}", None, None, ""),
        ("vllm bench throughput --model M --input-tokens 5", "0.8.5", None, "--input-tokens"),
        ("vllm bench throughput --model M --input-len 5 --max-num-seqs 3", "0.8.5", None, ""),
        ("vllm serve M --port 8000 2>&1 | grep --frobnicate", None, None, ""),
        ("curl --frobnicate http://localhost", None, None, ""),
    ],
)  # fmt: skip
def test_a_command_is_held_against_the_releases(
    text: str, since: str | None, until: str | None, told: str
) -> None:
    found = list(problems(text, since, until))

    assert bool(found) == bool(told)
    assert not told or told in found[0]
