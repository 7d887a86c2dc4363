"""Every command and text holds in every release that it claims, over all releases read."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import click
import pytest
import regex

from tests.commands import PROGRAMS, faults, simple_commands, with_comment
from tests.conftest import FIXTURES
from tests.releases import ALL, NEWEST, VERSIONS, Releases, span
from tests.texts import text_faults
from vllm_triage.catalogue import load
from vllm_triage.cli import main_group
from vllm_triage.fixes import render_verify, steps
from vllm_triage.model import FixStep
from vllm_triage.rules import Fix, Form, Rule, Topic
from vllm_triage.templates import fill, names
from vllm_triage.versions import holds

ROOT = FIXTURES.parent
ENTRIES: dict[str, Rule | Topic] = {
    **{kind.value: rule for kind, rule in load().rules.items()},
    **{f"topic {name}": topic for name, topic in load().topics.items()},
}

# What a log may put into a command's placeholders.
TYPICAL: Mapping[str, str] = {
    "environment_variable": "MASTER_ADDR", "environment_value": "10.0.0.1", "rope_factor": "4.0",
    "model": "org/name-7b", "port": "8080", "server_url": "http://10.0.0.7:8080", "host": "10.0.0.7", "max_model_len": "32768",
    "derived_max_model_len": "8192", "fitting_max_model_len": "21760", "lower_gpu_memory_utilization": "0.85",
    "higher_gpu_memory_utilization": "0.95", "lower_max_num_seqs": "128", "longer_timeout": "3600", "larger_swap_space": "32", "larger_cpu_cache": "16", "fitting_cpu_cache": "15", "higher_max_num_seqs": "1024",
    "fitting_tensor_parallel_size": "4", "free_port": "8081", "search_words": "ValueError no such thing",
    "parser": "hermes", "argument": "--FLAG", "path": "/srv/models/a", "adapter": "sql", "connector": "NixlConnector",
    "library": "libcudart.so.12", "package": "timm", "pci": "0000:b3:00.0", "key": "rope_scaling", "unit": "4711", "value": "vllm/vllm-openai:v0.10.2",
    "network_interface": "ens5", "named_model": "org/name-7b", "model_folder": "/srv/models/a", "model_files": "~/.cache/huggingface/hub/models--org--name-7b/snapshots/*/",
    "download": "org/name-7b", "config_path": "/srv/models/a/config.json", "quantization": "awq", "flag_name": "hf-overrides",
    "replacement": "--max-model-len 512", "module_package": "timm", "pci_address": "0000:b3:00.0",
    "higher_tensor_parallel_size": "8", "longer_max_model_len": "65536", "split_tensor_parallel_size": "4", "split_pipeline_parallel_size": "2", "lower_max_num_batched_tokens": "1024",
    "higher_max_num_batched_tokens": "32768", "master_host": "10.0.0.1", "master_port": "29501", "peer_host": "10.0.0.8", "peer_port": "5601", "pod": "vllm-7d9f6c5b8-x2x4q -n llm", "workload": "deployment/vllm -n llm", "namespace": "llm",
    "fitting_lora_rank": "64", "fitting_loras": "3", "variable": "HCCL_CONNECT_TIMEOUT", "address": "huggingface.co", "url": "https://huggingface.co",
}  # fmt: skip


@cache
def rendered(name: str, version: str | None, *, typical: bool) -> tuple[FixStep, ...]:
    fixes: tuple[Fix, ...] = ENTRIES[name].fix
    # Without `needs` and `unless`: every step is shown, whatever the log states.
    bare = [
        fix.model_copy(update={"needs": (), "unless": (), "where": {}, "ruled_out": {}})
        for fix in fixes
    ]
    return steps(bare, TYPICAL if typical else None, version)


def span_of(step: FixStep) -> tuple[str | None, str | None]:
    """The releases that a step states, `>=0.9`, `<=0.8.0`, `0.4.3 - 0.8.0`."""
    text = step.holds_for or ""
    if text.startswith(">="):
        return text[2:], None
    if text.startswith("<="):
        return None, text[2:]
    first, _, last = text.partition(" - ")
    return first or None, last or None


def changed(step: FixStep) -> str | None:
    """A server's command with a step's change."""
    words = [
        word
        for flag, value in step.change.items()
        if value != "-"
        for word in (flag, *([f"'{value}'"] if value else []))
    ]
    return f"vllm serve MODEL {' '.join(words)}" if words else None


@pytest.mark.parametrize("name", ENTRIES)
def test_a_step_holds_in_every_release_that_it_claims(name: str) -> None:
    wrong: list[str] = []
    for version in VERSIONS:
        for typical in (False, True):
            for step in rendered(name, version, typical=typical):
                if not holds(version, *span_of(step)):
                    # The documented step that this release does not have; it says so.
                    assert step.documented
                    continue
                if step.command:
                    wrong += [f"{version}: {fault}, in {step.command}" for fault in faults(step.command, version)]  # fmt: skip
                change = changed(step)
                if change and version in span("0.5.5", None):
                    wrong += [f"{version}: {fault}, in {step.change}" for fault in faults(change, version)]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize("name", ENTRIES)
def test_where_the_release_is_unknown_the_step_holds_in_the_newest(name: str) -> None:
    for step in rendered(name, None, typical=False):
        first, last = span_of(step)
        version = NEWEST if last is None else max(span(first, last), key=VERSIONS.index)
        assert step.command is None or faults(step.command, version) == ()


@pytest.mark.parametrize("name", ENTRIES)
def test_every_form_is_shown_for_some_release(name: str) -> None:
    shown = {step.command for version in (*VERSIONS, None) for step in rendered(name, version, typical=False)}  # fmt: skip
    for fix in ENTRIES[name].fix:
        for form in fix.form:
            assert span(form.since or fix.since, form.until or fix.until)
            command = fill(form.command, {}) if form.command else None
            module = command and command.replace("vllm serve ", "python -m vllm.entrypoints.openai.api_server --model ")  # fmt: skip
            assert command is None or {command, module} & shown


def test_typical_values_are_there_for_every_placeholder_of_a_command() -> None:
    used = {
        name
        for entry in ENTRIES.values()
        for fix in entry.fix
        for text in (fix.command, *(form.command for form in fix.form))
        if text
        for name in names(text)
    }
    assert used - set(TYPICAL) == set()


def texts() -> Iterator[tuple[str, str, Releases]]:
    """Every text that a reader sees, with the releases of those who may see it."""
    for name, entry in ENTRIES.items():
        if isinstance(entry, Rule):
            whole = [entry.title, entry.summary, entry.cause, *entry.collect]
        else:
            whole = [entry.title, entry.text, *(" | ".join(row) for row in entry.rows)]
        for text in whole:
            yield name, fill(text, {}) or text, ALL
        if isinstance(entry, Rule):
            for version in VERSIONS:
                yield (
                    f"{name} verify",
                    render_verify(entry, {}, version) or "",
                    frozenset((version,)),
                )
        for position, fix in enumerate(entry.fix, 1):
            held = span(fix.since, fix.until)
            for told in (fix.do, fix.why):
                if told:
                    yield f"{name} step {position}", fill(told, {}) or told, held
            alone = Form(since=fix.since, until=fix.until, command=fix.command)
            for form in fix.form or (alone,):
                comment = with_comment(fill(form.command or "", {}) or "")[1]
                owner = span(form.since or fix.since, form.until or fix.until)
                yield f"{name} step {position}", comment, owner


def test_texts_name_only_what_their_readers_have() -> None:
    wrong = {f"{name}: {fault}" for name, text, owner in texts() for fault in text_faults(text, owner)}  # fmt: skip

    assert sorted(wrong) == []


# Documents

COMMANDS = {
    name: command
    for name in ("triage ", *main_group.list_commands(click.Context(main_group)))
    if (command := main_group.get_command(click.Context(main_group), name)) is not None
}
OWN = {
    option for command in COMMANDS.values() for param in command.params for option in param.opts
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "patterns" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]  # fmt: skip


def blocks(text: str) -> Iterator[str]:
    """The commands of a page's shell blocks."""
    for block in regex.findall(
        r"^ *```sh\n(.*?)^ *```", text, flags=regex.DOTALL | regex.MULTILINE
    ):
        for row in regex.sub(r"\\\n\s*", " ", block).split("\n"):
            if row.strip():
                yield row.strip()
    for row in regex.findall(r"^ {4}(\S.*)$", text, flags=regex.MULTILINE):
        if row.split(" ", 1)[0] in PROGRAMS:
            yield row


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in ("kinds.md",)], ids=lambda page: page.name
)
def test_a_page_s_commands_hold_in_the_newest_release(page: Path) -> None:
    # The table of steps is written from the catalogue, which is checked above.
    text = regex.sub(r"<!-- steps -->.*?<!-- end of steps -->", "", page.read_text("utf-8"), flags=regex.DOTALL)  # fmt: skip

    assert [fault for row in blocks(text) for fault in faults(row, NEWEST)] == []
    prose = regex.sub(r"^ *```.*?^ *```", "", text, flags=regex.DOTALL | regex.MULTILINE)
    wrong = [
        fault for row in prose.split("\n") for fault in text_faults(row, frozenset((NEWEST,)))
    ]
    wrong = [fault for fault in wrong if fault.partition(":")[0] not in OWN]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_s_own_commands_have_their_options(page: Path) -> None:
    code = [
        *blocks(page.read_text("utf-8")),
        *regex.findall(r"`(vllm-triage [^`]+)`", page.read_text("utf-8")),
    ]
    for row in code:
        for words in simple_commands(with_comment(row)[0]):
            if words[0].rpartition("/")[2] != "vllm-triage":
                continue
            name = words[1] if len(words) > 1 and words[1] in COMMANDS else "triage "
            options = {option for param in COMMANDS[name].params for option in param.opts}
            given = {
                word.partition("=")[0]
                for word in words[1:]
                if word.startswith("-") and word != "-"
            }
            assert given - options - {"--help", "--version"} == set(), row


def test_the_page_of_kinds_shows_only_steps_that_are_checked_here() -> None:
    known = {
        row.strip()
        for name in ENTRIES
        for step in rendered(name, None, typical=False)
        for row in (step.command or "").split("\n")
    }
    assert set(blocks((ROOT / "docs" / "kinds.md").read_text("utf-8"))) - known == set()


# The checker itself


@pytest.mark.parametrize(
    ("command", "version"),
    [
        ("vllm serve MODEL --disable-flash-attn", "0.6.3.post1"),
        ("vllm serve MODEL --speculative-model DRAFT", "0.8.5"),
        ("vllm serve MODEL --speculative-config '{\"method\": \"ngram\"}'", "0.8.0"),
        ("vllm serve MODEL --speculative-config {\"method\": \"ngram\"}", "0.10.2"),
        ("vllm serve MODEL --speculative-config '{\"draft\": \"x\"}'", "0.10.2"),
        ("vllm serve MODEL --gpu-memory-utilization 1.1", "0.33.0"),
        ("vllm serve MODEL --gpu-memory-utilization 0", "0.33.0"),
        ("vllm serve MODEL --gpu-memory-utilization=high", "0.33.0"),
        ("vllm serve MODEL --tensor-parallel-size 0", "0.33.0"),
        ("vllm serve MODEL -tp 0", "0.33.0"),
        ("vllm serve MODEL --port 70000", "0.33.0"),
        ("vllm serve MODEL --max-model-len auto", "0.13.0"),
        ("vllm serve MODEL --max-model-len 64k", "0.8.0"),
        ("vllm serve MODEL --max-num-seqs", "0.33.0"),
        ("vllm serve MODEL --enforce-eager true", "0.33.0"),
        ("vllm serve --max-num-seqs 64", "0.33.0"),
        ("vllm serve MODEL --quantization fp8", "0.3.3"),
        ("vllm serve MODEL --quantization bitsandbytes", "0.28.0"),
        ("vllm serve MODEL --attention-backend TRITON", "0.33.0"),
        ("vllm serve MODEL --attention-backend TRITON_ATTN", "0.12.0"),
        ("vllm serve MODEL --compilation-config.level 3", "0.8.5"),
        ("vllm serve MODEL --disable-log-requests", "0.20.2"),
        ("VLLM_ATTENTION_BACKEND=TRITON_ATTN vllm serve MODEL", "0.10.2"),
        ("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve MODEL", "0.15.1"),
        ("VLLM_USE_V1=1 vllm serve MODEL", "0.33.0"),
        ("export VLLM_USE_V1=1", "0.33.0"),
        ("env VLLM_USE_V1=1 vllm serve MODEL", "0.33.0"),
        ("docker run -e VLLM_USE_V1=1 --gpus all vllm/vllm-openai --model MODEL", "0.33.0"),
        ("docker run --gpus all vllm/vllm-openai --model MODEL --swap-space 4", "0.18.1"),
        ("NCCL_TIMEOUT=1800 vllm serve MODEL", "0.33.0"),
        ("vllm serve MODEL", "0.5.0.post1"),
        ("vllm bench throughput --model MODEL --input-tokens 128", "0.33.0"),
        ("vllm bench latency --model MODEL --batch-size 8", "0.8.0"),
        ("vllm bench sweep", "0.10.2"),
        ("vllm collect-env", "0.8.0"),
        ("vllm --version", "0.6.3.post1"),
        ("vllm serve --help=max", "0.9.0.1"),
        ("nvidia-smi; true && vllm collect-env", "0.8.0"),
        ("ls $(vllm collect-env)", "0.8.0"),
        ("curl -s http://localhost:8000/metrics | grep vllm:gpu_cache_usage_perc", "0.12.0"),
        ("curl -s http://localhost:8000/metrics | grep kv_cache_usage", "0.8.5"),
        ("curl -s http://localhost:9090/metrics | grep vllm", "0.33.0"),
        ("curl -s http://localhost:8000/metrics | grep vllm_", "0.33.0"),
        ("huggingface-cli login", "0.24.0"),
        ("hf download MODEL", "0.6.3.post1"),
        ("nvidia-sm", "0.33.0"),
        ("ray start --head   # then: vllm serve MODEL --worker-use-ray", "0.33.0"),
        ("vllm serve 'MODEL", "0.33.0"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_refused(command: str, version: str) -> None:
    assert faults(command, version)


@pytest.mark.parametrize(
    ("command", "version"),
    [
        ("vllm serve MODEL --speculative-model DRAFT --num-speculative-tokens 5", "0.8.0"),
        ("vllm serve MODEL --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 3}'", "0.8.5"),
        ("VLLM_LOGGING_LEVEL=DEBUG vllm serve MODEL --max_model_len=4096 2>&1 | tee vllm.log".replace("_model_len", "-model-len"), "0.6.3.post1"),
        ("vllm serve MODEL --max-model-len auto -tp 2", "0.14.1"),
        ("vllm serve MODEL --max-model-len 64k", "0.8.5"),
        ("vllm serve MODEL --lora-modules a=b c=d", "0.10.2"),
        ("vllm serve MODEL --no-enable-prefix-caching", "0.8.0"),
        ("vllm serve MODEL --compilation-config.cudagraph_mode NONE", "0.33.0"),
        ("vllm bench throughput --model MODEL --input-len 128 --tensor-parallel-size 2", "0.8.5"),
        ("python -m vllm.entrypoints.openai.api_server --model MODEL --port 8001", "0.2.7"),
        ("docker run --gpus all -e HF_TOKEN vllm/vllm-openai:latest --model MODEL --max-num-seqs 8", "0.33.0"),
        ("sudo chown -R $(id -u):$(id -g) /srv", "0.33.0"),
        ("curl -s http://localhost:8000/metrics | grep -E 'num_requests_(running|waiting)'", "0.2.7"),
    ],
)  # fmt: skip
def test_a_right_command_is_accepted(command: str, version: str) -> None:
    assert faults(command, version) == ()


@pytest.mark.parametrize(
    "text",
    [
        "vllm bench latency (0.8.0 and later) measures it.",
        "Set `--swap-space 0`.",
        "Read `vllm:gpu_cache_usage_perc`.",
        "`VLLM_ATTENTION_BACKEND` (0.4.3 - 0.33.0) chooses it.",
        "until 0.11.2 `vllm:gpu_cache_usage_perc`",
        "`vllm:kv_cache_usage_perc` from 0.8.5 on",
        "NCCL_TIMEOUTS=1 helps",
        "Call `vllm bench throughput --input-tokens 5`.",
    ],
)
def test_a_text_that_names_what_is_not_there_is_refused(text: str) -> None:
    assert text_faults(text, frozenset((NEWEST,)))


@pytest.mark.parametrize(
    "text",
    [
        "`vllm:kv_cache_usage_perc`, until 0.10.2 `vllm:gpu_cache_usage_perc`, falls.",
        "`--swap-space` ended with 0.17.1.",
        "The guide's `--disable-flash-attn` never existed.",
    ],
)
def test_a_text_that_names_the_releases_is_accepted(text: str) -> None:
    assert text_faults(text, ALL) == ()
