"""What `check` says of rules that load but would not do what their author means."""

from pathlib import Path
from typing import IO, Any

import pytest

from tests.test_rule_mistakes import RULE
from vllm_triage.catalogue import load
from vllm_triage.errors import RuleError
from vllm_triage.rule_check import check

PATTERN = """
[[pattern]]
name       = "ours"
keywords   = ["QUOTA-2"]
regex      = 'QUOTA-2 on (?P<path>/[^ \\n]+)'
printed_by = "storage"
hits       = ["QUOTA-2 on /models is over"]
misses     = ["QUOTA-2 will be checked"]
"""
FIX = 'command = "df -h {path:/}"'
SMI = """==============NVSMI LOG==============

Driver Version : 550.127.05
GPU 00000000:10:1C.0
    ECC Errors
        Volatile
            DRAM Uncorrectable : {}
"""
ASKS = "at_least   = { ecc_errors = 1 }"


def judging(asks: str = ASKS, hit: str = "", miss: str = "") -> str:
    return f"""
[[pattern]]
name       = "ours"
artefact   = "gpu"
{asks}
printed_by = "nvidia-smi"
hits       = ['''
{hit}''']
misses     = ['''
{miss}''']
"""


def problems(folder: Path, text: str, kind: str = "host/disk_full") -> list[str]:
    path = folder / f"{kind}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return check(folder)


MISTAKES = {
    "a cause that is no kind": (RULE.replace("\nsummary", '\nexplained_by = ["gpu.nothing", "gpu.*"]\nsummary'), "'gpu.nothing' is neither a kind nor an area"),
    "an area that is none": (RULE.replace("\nsummary", '\nexplained_by = ["disk.*"]\nsummary'), "'disk.*' is neither a kind nor an area"),
    "two patterns of one name": (RULE + PATTERN.replace("ours", "our-quota"), "two patterns are named our-quota"),
    "a command and forms of it": (RULE.replace(FIX, FIX + '\n[[fix.form]]\ncommand = "df {path:/}"'), "fix 1: has both form and command or change; keep one"),
    "a change of a short flag": (RULE.replace(FIX, 'change = { "-tp" = "2" }'), "fix 1: change '-tp' is not a long flag"),
    "a bound on what is not captured": (RULE.replace('printed_by = "storage"', 'printed_by = "storage"\nat_least = { port = 1 }'), "our-quota: bounds 'port', which the regex does not capture"),
    "a regex that ends with anything": (RULE.replace("[^ \\n]+)'", "[^ \\n]+).*'"), "our-quota: regex begins or ends with a repeat of any character; drop it"),
    "words of which none is in the hit": (RULE.replace('keywords   = ["QUOTA-1"]', 'any_of     = ["QUOTA-2", "QUOTA-3"]'), "our-quota: none of any_of is in the hit 'QUOTA-1 on /models is over'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_the_one_problem(mistake: str, tmp_path: Path) -> None:
    text, expected = MISTAKES[mistake]

    found = problems(tmp_path, text)

    assert [one for one in found if expected in one], found
    assert all(one.startswith("host/disk_full.toml") for one in found)


def test_a_brace_left_open_is_told_where_it_stands(tmp_path: Path) -> None:
    text = RULE.replace("No space left on the disk", "No space left on {path:a disk")

    found = problems(tmp_path, text)
    with pytest.raises(
        RuleError, match=r"disk_full\.toml: .*\(in 'No space left on \{path:a disk'\)"
    ):
        load(tmp_path)

    assert found
    assert all(one.startswith("host/disk_full.toml: title: ") for one in found)


def test_a_brace_left_open_in_a_form_is_told(tmp_path: Path) -> None:
    form = '[[fix.form]]\nsince = "0.9.0"\ncommand = "df {path:/"'
    problems(tmp_path, RULE.replace(FIX, form))

    with pytest.raises(RuleError, match=r"\(in 'df \{path:/'\)"):
        load(tmp_path)


def test_a_regex_that_does_not_compile_is_told_before_a_log_is_read(tmp_path: Path) -> None:
    problems(tmp_path, RULE.replace("[^ \\n]+)", "[^ \\n]+"))

    with pytest.raises(RuleError, match=r"disk_full\.toml: our-quota: .*does not compile"):
        load(tmp_path)


@pytest.mark.parametrize("folder", ["", "empty", "none"])
def test_a_folder_without_rules_is_told(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "x.toml").touch()
    expected = {
        "": "an empty folder name for rules",
        "empty": r"empty: no AREA/KIND\.toml files in this folder",
        "none": "none: no such folder",
    }

    with pytest.raises(RuleError, match=expected[folder]):
        load([folder])


def test_a_rule_file_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems(tmp_path, RULE)

    def refused(*_: Any) -> IO[bytes]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)

    with pytest.raises(RuleError, match=r"disk_full\.toml: cannot be read: Permission denied"):
        load(tmp_path)


def test_a_users_rules_can_stand_alone(tmp_path: Path) -> None:
    problems(tmp_path, RULE)

    alone = load(tmp_path, builtin=False)

    assert [kind.value for kind in alone.rules] == ["host.disk_full"]
    assert alone.topics == {}


def test_a_hit_that_another_kind_claims_is_a_problem(tmp_path: Path) -> None:
    hit = "OSError: [Errno 28] No space left on device: '/models/x'"
    text = RULE.replace("QUOTA-1 on /models is over", hit).replace(
        "QUOTA-1", "No space left on device"
    )
    text = text.replace(
        "'No space left on device on (?P<path>/[^ \\n]+)'", "'No space left on device'"
    )

    found = problems(
        tmp_path, text.replace('"fatal"', '"fatal"\nrole = "symptom"'), "host/permission"
    )

    assert any("is claimed by host.disk_full:" in one for one in found), found


def test_a_number_where_a_pattern_captures_words_is_a_problem(tmp_path: Path) -> None:
    text = (
        RULE.replace("{path:a file}", "a file")
        .replace("(?P<path>/", "(?P<exit_code>/")
        .replace("{path:/}", "/")
    )

    found = problems(tmp_path, text, "host/terminated")

    assert any(
        "captures '/models' as exit_code, which is no such value" in one for one in found
    ), found


def test_a_pattern_that_needs_an_argument_is_tried_with_it(tmp_path: Path) -> None:
    needs = 'printed_by = "storage"\nneeds = ["download-dir"]'

    assert problems(tmp_path, RULE.replace('printed_by = "storage"', needs)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ("CUDA out of memory", "all went well", "is not matched by oom.load"),
        ("'quantization': 'awq'", "'dtype': 'half'", "does not show what the variant asks for"),
        ("'kv_cache_dtype': 'fp8'", "'quantization': 'fp8'", "would become oom.quantized"),
    ],
)
def test_a_variant_keeps_its_promises(
    right: str, wrong: str, expected: str, tmp_path: Path
) -> None:
    text = """
title    = "Out of memory, quantized"
severity = "fatal"
summary  = "It did not fit."
cause    = "The flag."
[[fix]]
do       = "Look."
[variant]
of       = "oom.load"
needs    = ["quantization"]
hits     = ['''INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.2
INFO 05-01 10:00:00 [cli_args.py:1] non-default args: {'model': 'org/model', 'quantization': 'awq'}
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.56 GiB of which 1.00 GiB is free.''']
misses   = ['''INFO 05-01 10:00:00 [api_server.py:1] vLLM API server version 0.9.2
INFO 05-01 10:00:00 [cli_args.py:1] non-default args: {'model': 'org/model', 'kv_cache_dtype': 'fp8'}
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.56 GiB of which 1.00 GiB is free.''']
"""
    assert problems(tmp_path, text, "oom/quantized") == []
    assert right in text

    found = problems(tmp_path, text.replace(right, wrong), "oom/quantized")

    assert any(expected in one for one in found), found


def test_a_pattern_that_judges_artefacts_keeps_its_promises(tmp_path: Path) -> None:
    head = RULE[: RULE.index("[[pattern]]")].replace("{path:a file}", "a file")
    head = head.replace("{path:/}", "/")
    faulty, sound = SMI.format(3), SMI.format(0)

    def said(text: str, kind: str = "hardware") -> list[str]:
        (tmp_path / kind).mkdir()
        return [
            problem.partition(", ")[2].partition(" '")[0]
            for problem in problems(tmp_path / kind, head + text, f"gpu/{kind.partition(' ')[0]}")
        ]

    assert said(judging(hit=faulty, miss=sound)) == []
    assert said(judging(hit=sound, miss=sound), "hardware 2") == ["ours: does not match its hit"]
    assert said(judging(hit=faulty, miss=faulty), "hardware 3") == ["ours: matches its miss"]
    assert "ours: asks nothing of the artefact; give at_least, at_most or equals" in said(
        judging("", faulty, sound), "hardware 4"
    )
    assert "is claimed by gpu.hardware:" in "".join(
        problems(tmp_path / "driver", head + judging(hit=faulty, miss=sound), "gpu/driver")
    )
