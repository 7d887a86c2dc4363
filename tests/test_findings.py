"""What fuzzing has found, made small; each kind of it is also generated anew by `tests/hostile.py`."""

import io
from pathlib import Path

import pytest

from tests import claims
from vllm_triage.pipeline import triage_paths

FOUND: dict[str, tuple[str, bytes]] = {
    # A blank line ended the entry; the one after it was taken for no more than its repetition.
    "a line between the rows of a journal's entry": (
        "whole",
        b"__CURSOR=\nMESSAGE=(pid=1)ERROR 05-01 10:00:40 y:5] eError\nERROR 05-01 10:04:40 y:5] aError\n\n",
    ),
    "an argument that is no number": ("whole", b"docker run - n vllm r --x nan"),
    "a context length that is infinite": (
        "whole",
        b"INFO 12-01 06:17:30 [utils.py:1] non-default args: {'model': 'a', 'max_model_len': "
        + b"9" * 5_000
        + b", 'port': 1e999}\nusage: vllm serve [model_tag] [options]\n"
        b"vllm serve: error: argument --dtype: invalid choice: 'float17' (choose from 'auto', 'half')\n",
    ),
    "a process of thousands of digits": (
        "whole",
        b"(EngineCore_DP0 pid=%b) ERROR 12-01 06:17:30 [core.py:1] ValueError: a" % (b"7" * 5_000),
    ),
    "a frame's line of thousands of digits": (
        "whole",
        b'Traceback (most recent call last):\n  File "/a.py", line %b, in f\nValueError: a'
        % (b"7" * 5_000),
    ),
    "an exit code that is no digit though it looks like one": (
        "artefact",
        b"\x03Name: a\nContainers:\n  vllm:\n    Last State:   Terminated\n      Exit Code:  \xc2\xb2\n",
    ),
    "JSON that breaks after its last line": ("artefact", b'\x06{"producer":{},"quantization":\n'),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_holds_now(name: str) -> None:
    claim, data = FOUND[name]

    claims.CLAIMS[claim](data)


def test_a_file_of_a_model_that_breaks_after_its_end_shows_its_last_line() -> None:
    data = b'{"producer": {},\n "quantization":\n\n'

    (incident,) = triage_paths(["-"], stdin=io.BytesIO(data)).incidents

    assert [(one.line, one.text) for one in incident.evidence] == [(2, ' "quantization":')]


def test_a_length_beyond_reason_is_halved_for_nobody(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(FOUND["a context length that is infinite"][1])

    report = triage_paths([path])

    assert [one.kind.value for one in report.incidents] == ["config.invalid_argument"]
