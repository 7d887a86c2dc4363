"""Bytes in, numbered lines out."""

import bz2
import gzip
import importlib
import io
import lzma
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_triage.errors import SourceError
from vllm_triage.paths import expand
from vllm_triage.sources import MAX_LINE, Reader

zstd: Any = importlib.import_module(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
)


def lines(data: bytes) -> list[tuple[int, str]]:
    return list(Reader(None, stream=io.BytesIO(data)))


def test_lines_are_numbered_as_lf_counts_them() -> None:
    assert lines(b"a\nb\rc\r\n\nd") == [(1, "a"), (2, "b\rc\r"), (3, ""), (4, "d")]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd.compress])
def test_compressed_inputs_are_told_by_content(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "misleading.log"
    assert callable(pack)
    path.write_bytes(pack(b"one\ntwo\n"))

    assert [text for _, text in Reader(path)] == ["one", "two"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_byte_order_marks_are_understood(encoding: str) -> None:
    assert lines("é\nb".encode(encoding)) == [(1, "é"), (2, "b")]


def test_bad_utf8_and_nul_bytes_are_tolerated() -> None:
    assert lines(b"a\xff\x00b and more text to read\n") == [(1, "a\ufffdb and more text to read")]


def test_a_line_over_the_limit_is_cut_and_counted() -> None:
    reader = Reader(None, stream=io.BytesIO(b"x" * (3 * MAX_LINE) + b"\nshort\n"))

    found = list(reader)

    assert [len(text) for _, text in found] == [MAX_LINE, 5]
    assert found[1][0] == 2
    assert reader.truncated_lines == 1


def test_a_binary_file_is_refused() -> None:
    with pytest.raises(SourceError, match="binary file"):
        Reader(None, stream=io.BytesIO(bytes(range(256)) * 40))


def test_folders_globs_and_repeats_expand_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("a")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.log").write_text("b")
    (tmp_path / "loop").symlink_to(tmp_path)

    found = expand([tmp_path, str(tmp_path / "*.log"), tmp_path / "a.log", "-"])

    assert [path.name if path else "-" for path in found.paths] == ["a.log", "b.log", "-"]
    assert found.problems == ()


def test_a_name_that_stands_for_nothing_is_one_sentence(tmp_path: Path) -> None:
    found = expand([tmp_path / "none.log"])

    assert found.paths == ()
    assert found.problems == (f"{tmp_path}/none.log: no such file; check the path",)


def test_blank_lines_in_a_row_are_counted() -> None:
    reader = Reader(None, stream=io.BytesIO(b"a\n\n\n\r\n\nb\n\n"))

    assert list(reader)[-2:] == [(6, "b"), (7, "")]
    assert reader.lines == 7
