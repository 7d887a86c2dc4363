"""Files are followed through rotation and truncation, and each byte is read once."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from vllm_triage import SourceError, follow
from vllm_triage.follow import Files, Follower, Piece


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vllm.log"


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def read(follower: Follower, times: int = 3) -> tuple[str, int]:
    """What several looks give, and how often a file began anew."""
    pieces = [piece for _ in range(times) for piece in follower.poll(0.0)]
    return b"".join(piece.data for piece in pieces).decode(), sum(one.restarts for one in pieces)


def test_what_is_there_is_the_past_and_what_is_appended_is_not(path: Path) -> None:
    add(path, "old\nhalf")
    follower = Follower(path, print)
    add(path, " a line\nnew\n")

    assert list(follower.poll(0.0)) == [
        Piece(b"old\nhalf", is_past=True, ends_past=True),
        Piece(b" a line\nnew\n"),
    ]
    assert list(follower.poll(0.0)) == []


def test_a_file_that_appears_later_is_read_from_its_start(path: Path) -> None:
    said: list[str] = []
    follower = Follower(path, said.append)
    assert read(follower) == ("", 0)
    add(path, "first\n")

    assert list(follower.poll(0.0)) == [Piece(restarts=True), Piece(b"first\n")]
    assert said == [f"{path}: is not there yet; waiting for it"]


def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(path: Path) -> None:
    add(path, "one\n")
    follower = Follower(path, print)
    read(follower)
    path.rename(path.with_suffix(".1"))
    add(path.with_suffix(".1"), "two\n")
    assert read(follower) == ("two\n", 0)
    add(path, "three\n")
    # The writer that held the old file ends its line before it takes the new one.
    assert list(follower.poll(0.0)) == []
    add(path.with_suffix(".1"), "late\n")

    assert read(follower) == ("late\nthree\n", 1)


def test_a_file_copied_and_emptied_is_read_from_its_start(path: Path) -> None:
    add(path, "one\ntwo\n")
    follower = Follower(path, print)
    read(follower)
    os.truncate(path, 0)
    assert read(follower) == ("", 1)
    add(path, "three\n")

    assert read(follower) == ("three\n", 0)


def test_a_file_emptied_and_grown_past_the_old_place_is_noticed(path: Path) -> None:
    add(path, "one\ntwo\n")
    follower = Follower(path, print)
    read(follower)
    os.truncate(path, 0)
    add(path, "a much longer text than before\n")

    assert read(follower) == ("a much longer text than before\n", 1)


def test_the_hole_that_a_writer_leaves_at_its_old_place_is_not_read(path: Path) -> None:
    size = 1_000_000
    with path.open("wb", buffering=0) as writer:
        writer.write(b"x" * (size - 1) + b"\n")
        follower = Follower(path, print)
        read(follower)
        os.truncate(path, 0)
        writer.write(b"new\n")
        text, restarts = read(follower)

    assert restarts == 1
    assert text.strip("\0") == "new\n"
    assert len(text) < size


def test_one_look_gives_a_bounded_part(path: Path) -> None:
    path.write_bytes(b"x" * 3_000_000)
    follower = Follower(path, print)

    first = sum(len(piece.data) for piece in follower.poll(0.0))

    assert 1_000_000 < first < 1_200_000
    assert len(read(follower, 5)[0]) == 3_000_000 - first


def test_a_pipe_is_refused(path: Path) -> None:
    os.mkfifo(path)

    with pytest.raises(SourceError, match="is no regular file; pipe it into vllm-triage filter"):
        Follower(path, print)


def test_a_glob_takes_new_files_and_leaves_rotated_and_compressed_ones(tmp_path: Path) -> None:
    add(tmp_path / "a.log", "a\n")
    add(tmp_path / "old.log.gz", "no text")
    files = Files([str(tmp_path / "*.log*")], print)
    files.scan(0.0)
    assert [one.path.name for one in files.followers] == ["a.log"]
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    add(tmp_path / "a.log", "anew\n")
    add(tmp_path / "b.log", "b\n")
    files.scan(1.0)
    assert len(files.followers) == 1
    files.scan(3.0)

    assert [one.path.name for one in files.followers] == ["a.log", "b.log"]
    assert read(files.followers[0]) == ("a\nanew\n", 1)
    # What came after the first look is new.
    assert list(files.followers[1].poll(0.0)) == [Piece(b"b\n")]


def test_a_file_of_a_glob_that_stays_away_is_given_up(tmp_path: Path) -> None:
    add(tmp_path / "a.log", "a\n")
    files = Files([str(tmp_path / "*.log")], print)
    files.scan(0.0)
    (follower,) = files.followers
    (tmp_path / "a.log").unlink()
    read(follower)
    files.scan(3.0)
    assert not follower.is_over
    files.scan(6.0)

    assert follower.is_over
    assert files.followers == []


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    files = Files([str(tmp_path)], print)
    files.scan(0.0)
    add(tmp_path / "a.log", "a\n")
    files.scan(3.0)

    assert [one.path.name for one in files.followers] == ["a.log"]


def test_a_compressed_file_that_is_named_is_said_not_to_be_followed(path: Path) -> None:
    packed = path.with_name("vllm.log.1.gz")
    packed.write_bytes(b"")
    path.write_text("")
    said: list[str] = []
    files = Files([str(packed), str(path)], said.append)

    assert [one.path for one in files.followers] == [path]
    assert said == [f"{packed}: is compressed and not followed; vllm-triage {packed} triages it"]
    with pytest.raises(SourceError, match="nothing else to follow"):
        Files([str(packed)], said.append)


def test_a_file_that_cannot_be_opened_is_said_once_and_read_when_it_can(path: Path) -> None:
    said: list[str] = []
    path.symlink_to(path)
    follower = Follower(path, said.append)
    assert read(follower) == ("", 0)
    assert follower.identity is None
    assert said == [
        f"{path}: cannot be read: Too many levels of symbolic links; check its permissions"
    ]
    path.unlink()
    add(path, "one\n")

    assert read(follower) == ("one\n", 1)
    assert len(said) == 1


def test_a_rotated_file_that_may_not_be_read_yet_is_read_from_its_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    add(path, "one\n")
    follower = Follower(path, said.append)
    read(follower)
    path.rename(path.with_suffix(".1"))
    add(path, "two\n")

    def refused(*_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("vllm_triage.follow.os.open", refused)
        assert read(follower) == ("", 0)
    assert said == [f"{path}: cannot be read: Permission denied; check its permissions"]

    assert read(follower) == ("two\n", 1)
    follower.close()
    follower.close()


@pytest.mark.parametrize("head", [10, 10_000])
def test_a_disk_that_fails_is_said_once_and_read_when_it_is_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, head: int
) -> None:
    monkeypatch.setattr(follow, "PAST_HEAD", head)
    monkeypatch.setattr(follow, "PAST_END", 10)
    monkeypatch.setattr(follow, "_PER_POLL", 20)
    monkeypatch.setattr(follow, "_CHUNK", 20)
    said: list[str] = []
    path.write_bytes(b"123456789\n" * 10)
    follower = Follower(path, said.append)
    first = list(follower.poll(0.0))

    def failing(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("vllm_triage.follow.os.read", failing)
        between = [*follower.poll(0.0), *follower.poll(0.0)]
    rest = [piece for _ in range(9) for piece in follower.poll(0.0)]

    assert said == [f"{path}: cannot be read: Input/output error; check its permissions"]
    pieces = [*first, *between, *rest]
    assert sum(one.data.count(b"\n") + one.skipped_lines for one in pieces) == 10
    assert sum(one.skipped_lines for one in pieces) == (7 if head == 10 else 0)


def test_a_link_that_leads_nowhere_is_followed_when_it_leads_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to(tmp_path / "real")
    said: list[str] = []
    files = Files([str(tmp_path / "*.log")], said.append)
    files.scan(0.0)
    assert files.followers == []
    assert said == [f"{tmp_path}/*.log: no file yet; waiting for one"]
    add(tmp_path / "real", "one\n")
    files.scan(3.0)

    assert read(files.followers[0]) == ("one\n", 0)


def test_files_over_the_most_are_said_once_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_FILES", 2)
    for name in "abcd":
        add(tmp_path / f"{name}.log", name)
    said: list[str] = []
    files = Files([str(tmp_path / "*.log")], said.append)
    files.scan(0.0)

    assert [one.path.name for one in files.followers] == ["a.log", "b.log"]
    assert said == [f"more than 2 files; {tmp_path}/c.log and others are not followed"]
