"""Files that are damaged, in the way, not there or made to do harm: clear words, the right exit code."""

import bz2
import errno
import gzip
import json
import lzma
import os
import signal
import stat
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd  # type: ignore[import-not-found,unused-ignore]

from tests.conftest import FIXTURES
from tests.test_cli import run
from vllm_triage import outputs, sources, split
from vllm_triage.artefacts import formats
from vllm_triage.errors import RuleError, SourceError
from vllm_triage.paths import expand, matched
from vllm_triage.pipeline import triage_paths
from vllm_triage.rule_check import check
from vllm_triage.sources import Reader

LOG = FIXTURES / "oom" / "kv-cache-too-small.log"
IS_LINUX = sys.platform == "linux"
RULE = """
[[pattern]]
name = "our-storage-layer"
keywords = ["STORAGE-17"]
regex = 'STORAGE-17: (?P<path>/[^ \\n]+)'
printed_by = "storage"
hits = ["STORAGE-17: /models/a is offline"]
misses = ["INFO STORAGE-18: /models/a is online"]
"""


def is_one_sentence(text: str) -> bool:
    return text.count("\n") == 1 and text.startswith("vllm-triage: ") and "Traceback" not in text


# What is named as input.


def test_a_folder_with_loops_pipes_and_devices_gives_its_logs(tmp_path: Path) -> None:
    (tmp_path / "pod.log").write_bytes(LOG.read_bytes())
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "here").symlink_to(tmp_path)
    (tmp_path / "zero.log").symlink_to("/dev/zero")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nothing")
    (tmp_path / "a.log").symlink_to(tmp_path / "b.log")
    (tmp_path / "b.log").symlink_to(tmp_path / "a.log")

    found = expand([tmp_path])

    assert [path.name for path in found.paths if path] == ["pod.log"]
    assert found.problems == ()


def test_a_glob_of_all_depths_ends_where_links_lead_in_circles(tmp_path: Path) -> None:
    # The standard library's glob lists two to the power of forty paths of these.
    for name in ("x", "y"):
        (tmp_path / name).symlink_to(tmp_path)
    (tmp_path / "sub").mkdir()
    for log in (tmp_path / "a.log", tmp_path / "sub" / "b.log"):
        log.write_text("a")

    assert [path.name for path in matched(f"{tmp_path}/**/*.log")] == ["a.log", "b.log"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**", ["a/b/x.log", "a/y.log", "z.txt"]),
        ("**/*.log", ["a/b/x.log", "a/y.log"]),
        ("a/**/*.log", ["a/b/x.log", "a/y.log"]),
        ("**/b/**/x.*", ["a/b/x.log"]),
        ("*/**/.h/*", ["a/.h/w.log"]),
        ("[a-c]/*.log", ["a/y.log"]),
        ("nothing/**/*", []),
    ],
)
def test_a_glob_stands_for_what_a_shell_makes_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, names: list[str]
) -> None:
    for name in ("a/b/x.log", "a/y.log", "z.txt", "a/.h/w.log", "a/b/.v.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a")
    monkeypatch.chdir(tmp_path)

    assert [path.as_posix() for path in matched(pattern) if path.is_file()] == names


def test_a_folder_of_any_depth_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "top"
    top.mkdir()
    monkeypatch.chdir(top)
    try:
        # More than Python can call into itself, less than the system lets a path be long.
        for _ in range(1_200):
            Path("d").mkdir()
            os.chdir("d")
        Path("x.log").write_text("a")

        assert [path.name for path in expand([top]).paths if path] == ["x.log"]
        assert [path.name for path in matched(f"{top}/**/*.log")] == ["x.log"]
    finally:
        os.chdir(tmp_path)
        # Neither pytest nor the standard library can.
        subprocess.run(["rm", "-rf", str(top)], check=True)  # noqa: S607, RUF100


@pytest.mark.parametrize(
    "name", ["two\nlines.log", "bad\udcff.log", "\x1b[31mred.log", "a\u202eb"]
)
def test_a_name_of_any_bytes_is_read_and_named_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(LOG.read_bytes())

    assert [one.kind for one in triage_paths([path]).incidents]

    done = run(tmp_path / f"no{name}")

    assert done.returncode == 2
    assert is_one_sentence(done.stderr)
    assert "\x1b" not in done.stderr
    assert "\u202e" not in done.stderr


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/full", "/dev/urandom", "/proc/self/mem"])
@pytest.mark.skipif(not IS_LINUX, reason="devices of Linux")
def test_a_device_is_refused(name: str) -> None:
    done = run(name)

    assert done.returncode == 2
    assert is_one_sentence(done.stderr)
    assert done.stdout == ""


def test_a_link_to_itself_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.symlink_to(path)

    done = run(path)

    assert done.returncode == 2
    assert is_one_sentence(done.stderr)
    assert "symbolic links" in done.stderr


def test_one_file_of_many_names_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(LOG.read_bytes())
    (tmp_path / "b.log").hardlink_to(tmp_path / "a.log")
    (tmp_path / "c.log").symlink_to(tmp_path / "a.log")

    report = triage_paths([tmp_path, tmp_path / "c.log", f"{tmp_path}/*.log", tmp_path / "a.log"])

    assert [Path(one.name).name for one in report.sources] == ["a.log"]
    assert [one.count for one in report.incidents] == [
        one.count for one in triage_paths([LOG]).incidents
    ]


@pytest.mark.skipif(not IS_LINUX or os.geteuid() != 0, reason="needs to become somebody else")
def test_what_may_not_be_read_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"vllm-triage-test-{os.getpid()}"
    (folder / "closed").mkdir(parents=True)
    try:
        (folder / "pod.log").write_bytes(LOG.read_bytes())
        (folder / "secret.log").write_bytes(LOG.read_bytes())
        (folder / "closed" / "x.log").write_bytes(LOG.read_bytes())
        for path, mode in ((folder, 0o755), (folder / "pod.log", 0o644), (folder / "secret.log", 0), (folder / "closed", 0)):  # fmt: skip
            path.chmod(mode)
        told = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(folder), str(folder / "closed" / "x.log"),
             str(folder / "out.json"), str(LOG)],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent,
            # Nobody may not write what coverage measures.
            env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
        )  # fmt: skip
        assert told.stderr == ""
        problems, kinds, outside, output = json.loads(told.stdout)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)  # noqa: S607, RUF100

    assert kinds == ["oom.kv_cache"]
    assert [Path(text.partition(":")[0]).name for text in problems] == ["closed", "secret.log"]
    assert all("Permission denied; check its permissions" in text for text in problems)
    assert "Permission denied; check the path and its permissions" in outside
    assert "cannot be written: Permission denied; choose another file" in output


_AS_NOBODY = """
import json, os, sys
from pathlib import Path
import vllm_triage.pipeline, vllm_triage.outputs
# What is imported on the way may lie where only root can read.
vllm_triage.pipeline.triage_paths([sys.argv[4]])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
report = vllm_triage.pipeline.triage_paths([sys.argv[1]])
said = []
for what in (
    lambda: vllm_triage.pipeline.triage_paths([sys.argv[2]]),
    lambda: vllm_triage.outputs.write(Path(sys.argv[3]), b"x"),
):
    try:
        what()
    except vllm_triage.errors.SourceError as error:
        said.append(str(error))
problems = [one.problem for one in report.sources if one.problem]
kinds = [one.kind.value for one in report.incidents if one.id == report.root_cause]
print(json.dumps([problems, kinds, *said]))
"""


# What happens to a file while it is read.


class _Changing:
    """A file to which something happens after its first bytes were read."""

    def __init__(self, path: Path, happen: Callable[[Path], None]) -> None:
        self._file = path.open("rb")
        self._path = path
        self._happen: Callable[[Path], None] | None = happen

    def read(self, size: int) -> bytes:
        data = self._file.read(min(size, 4_096))
        happen, self._happen = self._happen, None
        if happen is not None:
            happen(self._path)
        return data

    def close(self) -> None:
        self._file.close()


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\none more line\n")


def _shrink(path: Path) -> None:
    os.truncate(path, 5_000)


def _replace(path: Path) -> None:
    path.rename(path.with_suffix(".1"))
    path.write_text("another log\n")


@pytest.mark.parametrize("happen", [_grow, _shrink, _replace, Path.unlink])
def test_a_file_that_changes_is_read_as_far_as_it_goes(
    tmp_path: Path, happen: Callable[[Path], None]
) -> None:
    path = tmp_path / "pod.log"
    path.write_bytes(LOG.read_bytes())

    reader = Reader(None, stream=_Changing(path, happen))  # type: ignore[arg-type]
    rows = [text for _, text in reader]

    assert reader.problem is None
    whole = LOG.read_bytes().decode("utf-8").split("\n")
    if happen is _shrink:
        # The last line is cut where the file was.
        assert rows[:-1] == whole[: len(rows) - 1]
        assert whole[len(rows) - 1].startswith(rows[-1])
    else:
        assert rows[: len(whole) - 1] == whole[:-1]
        assert rows[len(whole) - 1 :] == (["", "one more line"] if happen is _grow else [])


@pytest.mark.skipif(not split.can_split(), reason="processes cannot be forked here")
@pytest.mark.parametrize("happen", [_grow, _shrink, _replace, Path.unlink])
def test_a_file_that_changes_under_several_processes_is_read_as_far_as_it_goes(
    tmp_path: Path, happen: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_triage.paths.LARGE_BYTES", 1)
    monkeypatch.setattr("vllm_triage.split.LARGE_BYTES", 2)
    monkeypatch.setattr("vllm_triage.split._CHUNK", 900)
    monkeypatch.setattr("vllm_triage.split._LEARNING", 2_700)
    path = tmp_path / "pod.log"
    data = b"INFO 12-01 06:17:30 [x.py:1] here\n" * 300 + LOG.read_bytes()
    path.write_bytes(data)
    left = [happen]

    def progress(count: int) -> None:
        if left and count > 2_000:
            left.pop()(path)

    report = triage_paths([path], jobs=3, progress=progress)

    assert left == []
    (source,) = report.sources
    assert source.problem is None
    assert source.lines <= data.count(b"\n") + 2
    assert bool(report.incidents) is (happen is not _shrink)


@pytest.mark.skipif(not split.can_split(), reason="processes cannot be forked here")
def test_a_file_whose_name_is_gone_before_it_is_split_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_triage.paths.LARGE_BYTES", 1)
    path = tmp_path / "pod.log"
    path.write_bytes(LOG.read_bytes())
    told = formats.format_of

    def format_of(head: str) -> object:
        path.rename(path.with_suffix(".1"))
        return told(head)

    monkeypatch.setattr("vllm_triage.pipeline.is_large", lambda _: True)
    monkeypatch.setattr("vllm_triage.pipeline.format_of", format_of)

    assert [one.kind for one in triage_paths([path], jobs=2).incidents]


def test_a_file_that_cannot_be_read_further_says_how_far(tmp_path: Path) -> None:
    class Broken:
        def __init__(self) -> None:
            self.parts = [b"INFO one\nINFO two\n", None]

        def read(self, _: int) -> bytes:
            part = self.parts.pop(0)
            if part is None:
                raise OSError(errno.EIO, "Input/output error")
            return part

        def close(self) -> None:
            pass

    reader = Reader(None, stream=Broken())  # type: ignore[arg-type]

    assert [text for _, text in reader] == ["INFO one", "INFO two"]
    assert reader.problem == "<stdin>: could be read only as far as line 3: Input/output error"


# Archives.


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_a_damaged_zstd_file_is_read_as_far_as_it_goes(tmp_path: Path, at: int) -> None:
    data = bytearray(zstd.compress(LOG.read_bytes()[:3_000]))
    data[4 + at % (len(data) - 4)] ^= 0x5A
    path = tmp_path / "pod.log.zst"
    path.write_bytes(data)

    try:
        reader = Reader(path)
    except SourceError:
        return
    list(reader)
    assert reader.problem is None or reader.problem.startswith(f"{path}: could be read only")


def test_xz_files_that_were_put_together_are_one_log(tmp_path: Path) -> None:
    path = tmp_path / "pod.log.xz"
    path.write_bytes(lzma.compress(b"one\ntwo\n") + lzma.compress(b"three\n") + b"\0" * 8)

    assert [text for _, text in Reader(path)] == ["one", "two", "three"]


def test_an_xz_file_that_asks_for_much_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pod.log.xz"
    wide = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    path.write_bytes(lzma.compress(b"one\n" * 10_000, filters=wide))

    reader = Reader(path)

    assert list(reader) == []
    assert reader.problem is not None
    assert "over 128 MiB of memory; pipe it: xz -dc" in reader.problem


@pytest.mark.parametrize("form", ["gzip", "bz2", "lzma", "zstd"])
def test_a_decompression_bomb_is_read_in_little_memory(tmp_path: Path, form: str) -> None:
    size = 48_000_000
    data = b"a" * size
    packed = {
        "gzip": lambda: gzip.compress(data),
        "bz2": lambda: bz2.compress(data),
        "lzma": lambda: lzma.compress(data),
        "zstd": lambda: zstd.compress(data),
    }
    path = tmp_path / "bomb"
    path.write_bytes(packed[form]())

    assert path.stat().st_size < size / 900
    tracemalloc.start()
    try:
        reader = Reader(path)
        rows = list(reader.blocks())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [len(data) for _, data in rows] == [sources.MAX_LINE]
    assert reader.truncated_lines == 1
    assert peak < size / 3


# Where the report goes.


def test_a_report_that_finds_no_room_leaves_the_old_one_and_no_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    real = os.open

    def opened(path: object, flags: int, mode: int = 0o777) -> int:
        return real("/dev/full" if ".report.json." in str(path) else path, flags & ~os.O_EXCL & ~os.O_CREAT, mode)  # type: ignore[arg-type]  # fmt: skip

    monkeypatch.setattr("vllm_triage.outputs.os.open", opened)
    with pytest.raises(SourceError, match=r"report\.json: cannot be written: No space left"):
        outputs.write(target, b"new" * 10_000)

    assert target.read_text() == "old"


def test_a_file_in_a_folder_that_takes_no_new_ones_is_written_or_left_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    real = os.open

    def opened(path: object, flags: int, mode: int = 0o777) -> int:
        if ".report.json." in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, mode)  # type: ignore[arg-type]

    monkeypatch.setattr("vllm_triage.outputs.os.open", opened)
    outputs.write(target, b"new")
    assert target.read_text() == "new"

    with pytest.raises(SourceError, match="Permission denied"):
        outputs.write(tmp_path / "none" / ".." / "report.json", b"new", is_private=True)
    assert target.read_text() == "new"


def test_a_report_keeps_the_mode_of_the_one_before_and_links_stay(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "latest.json"
    link.symlink_to(target)

    assert run(LOG, "-f", "json", "-o", link).returncode == 1

    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert json.loads(target.read_text())["root_cause"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest.json", "report.json"]


def test_a_new_report_can_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        outputs.write(tmp_path / "a.json", b"x")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".", "is a directory"),
        ("none/report.json", "there is no such folder; make it first"),
        ("loop", "Too many levels of symbolic links; choose another file"),
        ("pod.log", "is one of the logs; choose another file"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, name: str, words: str
) -> None:
    log = tmp_path / "pod.log"
    log.write_bytes(LOG.read_bytes())
    (tmp_path / "loop").symlink_to("loop")

    done = run(log, "-f", "json", "-o", tmp_path / name)

    assert done.returncode == 2
    assert is_one_sentence(done.stderr)
    assert words in done.stderr
    assert log.read_bytes() == LOG.read_bytes()


@pytest.mark.skipif(not IS_LINUX, reason="devices of Linux")
@pytest.mark.parametrize("where", ["-o /dev/full", "> /dev/full"])
def test_a_full_disk_is_one_sentence(where: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m vllm_triage {LOG} -f json {where}",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert is_one_sentence(done.stderr)
    assert "cannot be written: No space left on device" in done.stderr


@pytest.mark.skipif(not IS_LINUX, reason="devices of Linux")
def test_standard_output_has_a_name_too() -> None:
    done = run(LOG, "-f", "json", "-o", "/dev/stdout")

    assert done.returncode == 1
    assert json.loads(done.stdout)["root_cause"]


def test_a_pipe_gets_the_whole_report(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    done = run(LOG, "-f", "json", "-o", fifo)
    reader.join()

    assert done.returncode == 1
    assert json.loads(got[0])["root_cause"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


# Rule folders.


def rules(folder: Path, content: str | bytes, name: str = "host/permission.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def pattern(regex: str) -> str:
    return RULE.replace("'STORAGE-17: (?P<path>/[^ \\n]+)'", f"'''{regex}'''")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a = " + "[" * 100_000, "nested too deep"),
        ("a." * 3_000 + "b = 1", "nested too deep"),
        ("a = " + "9" * 10_000, "not valid TOML"),
        (b"\xff\xfe\0a", "not valid TOML"),
        (RULE + "# " + "x" * 1_100_000, "is larger than 1 MiB"),
        (pattern("(" * 5_000 + "S" + ")" * 5_000), "longer than|nested too deep"),
        (pattern("(" * 2_000 + "S" + ")" * 2_000), "nested too deep"),
        (pattern("(?:(?:S{60000}){60000}){60000}"), "repeats its parts too often"),
        (pattern("S{99999999999999999999}"), "repeats its parts too often|does not compile"),
        (pattern("|".join(f"S{number}" for number in range(9_000))), "longer than 10,000"),
        (pattern("(?P<exec>__import__"), "does not compile"),
    ],
)
def test_hostile_rules_are_refused_in_one_sentence(
    tmp_path: Path, content: str | bytes, words: str
) -> None:
    folder = rules(tmp_path, content)

    with pytest.raises(RuleError, match=words) as said:
        triage_paths([LOG], rules=[folder])
    told = check(folder)

    assert "permission.toml" in str(said.value)
    assert "\n" not in str(said.value)
    assert len(str(said.value)) < 500
    assert len(told) == 1
    assert all("permission.toml" in text for text in told)


def test_nothing_in_a_rule_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = rules(tmp_path / "rules", RULE)
    trap = tmp_path / "trap"
    code = f"import pathlib; pathlib.Path({str(trap)!r}).touch()"
    for name in ("__init__.py", "host/__init__.py", "conftest.py", "sitecustomize.py", "host/permission.py"):  # fmt: skip
        rules(folder, code, name)
    call = b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR."
    for name in (
        "prebuilt.marshal",
        "precompiled.marshal",
        "host/x.pickle",
        "host/permission.pyc",
    ):
        rules(folder, call, name)
    os.mkfifo(folder / "host" / "pipe.toml")
    (folder / "host" / "zero.toml").symlink_to("/dev/zero")
    (folder / "loop").symlink_to(folder)
    monkeypatch.chdir(folder)

    assert check(folder) == []
    done = run(LOG, "--rules", folder)

    assert done.returncode == 1
    assert done.stderr == ""
    assert not trap.exists()


def test_a_text_of_a_rule_is_never_evaluated(tmp_path: Path) -> None:
    told = "{__class__} {path.__init__} {0} %s $(id) `id` ${HOME}"
    fix = f'\n[[fix]]\ndo = "Look at the storage"\nwhy = "{told}"\nrisk = "read"\n'
    folder = rules(tmp_path, RULE + fix)

    log = tmp_path / "x.log"
    log.write_text("STORAGE-17: /a/{path}/{model}/$(id) is offline\n")
    try:
        report = triage_paths([log], rules=[folder])
    except RuleError as error:
        assert "permission.toml" in str(error)  # noqa: PT017 - either way nothing of it is run
        return
    texts = [step.why or "" for one in report.incidents for step in one.fix_steps]
    assert not any("<class" in text or "uid=" in text for text in texts)


@pytest.mark.skipif(not IS_LINUX or os.geteuid() != 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    folder = rules(tmp_path / "rules", RULE)
    for place in (
        "/proc/nowhere",
        "/dev/null",
        str(tmp_path / "rules" / "host" / "permission.toml"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "vllm_triage", str(LOG), "--rules", str(folder)],
            env={**os.environ, "XDG_CACHE_HOME": place, "VLLM_TRIAGE_NO_CACHE": ""},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

        assert done.returncode == 1
        assert done.stderr == ""


def test_a_signal_while_a_report_is_written_leaves_no_half(tmp_path: Path) -> None:
    """The file is replaced in one step, whatever ends the process before it."""
    target = tmp_path / "report.json"
    target.write_text("old")
    code = (
        "import os, signal, sys; from pathlib import Path; from vllm_triage import outputs\n"
        "Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"outputs.write(Path({str(target)!r}), b'new')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)

    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
