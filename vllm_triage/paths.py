"""Paths: the inputs that names, folders and globs stand for."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import NamedTuple

from vllm_triage.errors import SourceError
from vllm_triage.globs import fits

SNIFF = 8192

MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh91AY&SY", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)


class Expanded(NamedTuple):
    """The inputs that names stand for, and a sentence for each name that stands for none."""

    paths: tuple[Path | None, ...]
    problems: tuple[str, ...]


def shown(path: Path | str) -> str:
    """A file's name as it can be printed."""
    return str(path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def printable(text: str) -> str:
    """Text that can be written as UTF-8: halves of characters are replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


LARGE_BYTES = 67_108_864
"""A file under this size is read by one process: starting more would cost more than it saves."""


def is_large(path: Path) -> bool:
    """Tell a file that is worth several processes."""
    try:
        return path.is_file() and path.stat().st_size >= LARGE_BYTES
    except OSError:
        return False


def is_name(text: str) -> bool:
    """Tell whether a text names a file, folder or standard input; a log's line does not."""
    try:
        return text == "-" or Path(text).exists()
    except (OSError, ValueError):
        return False


def expand(names: Sequence[str | Path]) -> Expanded:
    """Turn files, folders, globs and `-` (None: standard input) into inputs, each once."""
    paths: dict[object, Path | None] = {}
    problems: list[str] = []
    for name in names:
        try:
            found = _expand(name, problems)
        except SourceError as error:
            problems.append(str(error))
            continue
        for path in found:
            paths.setdefault(_identity(path), path)
    return Expanded(tuple(paths.values()), tuple(problems))


def _identity(path: Path | None) -> object:
    """The same for all names of one file."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return str(path)
    return found.st_dev, found.st_ino


def _expand(name: str | Path, problems: list[str]) -> list[Path | None]:
    if str(name) == "-":
        return [None]
    if not str(name):
        message = "an empty file name; name a log file, or - for standard input"
        raise SourceError(message)
    path = Path(name)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        found = matched(name) if isinstance(name, str) else []
        if found:
            return [path for path in found if path.is_file()]
        raise SourceError(_missing(path)) from None
    except ValueError:
        message = f"{shown(path)!r}: not a file name"
        raise SourceError(message) from None
    except OSError as error:
        message = f"{shown(path)}: cannot be opened: {error.strerror or error}; check the path and its permissions"
        raise SourceError(message) from None
    if stat.S_ISDIR(mode):
        return _folder(path, problems)
    return [path]


def _missing(path: Path) -> str:
    near: list[str] = []
    if path.parent.is_dir():
        try:
            import difflib

            near = difflib.get_close_matches(
                path.name, [one.name for one in path.parent.iterdir()], 3, 0.6
            )
        except OSError:
            near = []
    hint = f"did you mean {', '.join(shown(name) for name in near)}?" if near else "check the path"
    return f"{shown(path)}: no such file; {hint}"


def _folder(root: Path, problems: list[str]) -> list[Path | None]:
    found: list[Path | None] = []

    def unlisted(error: OSError) -> None:
        problems.append(
            f"{shown(error.filename)}: cannot be listed: {error.strerror or error}; check its permissions"
        )

    for folder, folders, names in _walk(root, unlisted):
        if _is_model_folder(names):
            # Its weights and vocabulary are no logs; beside weights lies the model once more.
            if any(map(_is_weights, names)):
                folders.clear()
            names = [name for name in names if name in _MODEL_FILES or _is_log_name(name)]
        if "snapshots" in folders and "blobs" in folders:
            # The hub's cache: snapshots name the files that lie in blobs.
            folders.remove("blobs")
        for name in names:
            path = Path(folder, name)
            try:
                if path.is_file() and not name.startswith(".") and _is_text(path):
                    found.append(path)
            except OSError:
                found.append(path)
    if not found:
        message = f"{shown(root)}: no logs in this folder; name a file, or a folder that holds text or compressed logs"
        raise SourceError(message)
    return found


def _walk(
    root: Path, unlisted: Callable[[OSError], None]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each folder with its folders and its other names, sorted; what is taken out of the folders is not entered.

    Symbolic links to folders are not followed, so no loop can arise, and any depth will do.
    """
    left = [str(root)]
    while left:
        folder = left.pop()
        folders: list[str] = []
        names: list[str] = []
        try:
            with os.scandir(folder) as found:
                for one in found:
                    if one.is_dir(follow_symlinks=False):
                        folders.append(one.name)
                    elif not _is_link_to_folder(one):
                        names.append(one.name)
        except OSError as error:
            unlisted(error)
        folders.sort()
        yield folder, folders, sorted(names)
        left += [os.path.join(folder, name) for name in reversed(folders)]  # noqa: PTH118


def _is_link_to_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def matched(pattern: str) -> list[Path]:
    """The paths that a shell's pattern stands for, sorted; `**` follows no symbolic links."""
    parts = pattern.replace(os.sep, "/").split("/")
    if "**" not in parts:
        # Path.glob wants the fixed part apart; a shell's pattern comes in one piece.
        return [Path(one) for one in sorted(glob(pattern))]  # noqa: PTH207
    # The standard library's own goes through links, of which two to their folder never end.
    at = parts.index("**")
    above, below = "/".join(parts[:at]), [part for part in parts[at:] if part]
    if below[-1] == "**":
        below.append("*")
    top = above or ("/" if at else ".")
    has_hidden = any(part.startswith(".") for part in below)
    found: list[str] = []
    for root in glob(top):  # noqa: PTH207
        for folder, folders, names in _walk(Path(root), lambda _: None):
            inside = Path(folder).relative_to(root).parts
            found += [
                os.path.join(folder, name)  # noqa: PTH118
                for name in (*folders, *names)
                if _is_as((*inside, name), below)
            ]
            if not has_hidden:
                folders[:] = [name for name in folders if not name.startswith(".")]
    return [Path(one) for one in sorted(found)]


def _is_as(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Tell whether the parts of a path are as those of a pattern, of which `**` stands for any number."""
    # Which beginnings of the pattern fit the parts so far.
    fitting = _skipped({0}, pattern)
    for part in parts:
        going = {at for at in fitting if at < len(pattern)}
        stay = {at for at in going if pattern[at] == "**" and not part.startswith(".")}
        step = {at + 1 for at in going if pattern[at] != "**" and _is_name_as(part, pattern[at])}
        fitting = _skipped(stay | step, pattern)
    return len(pattern) in fitting


def _skipped(fitting: set[int], pattern: Sequence[str]) -> set[int]:
    for at in range(len(pattern)):
        if at in fitting and pattern[at] == "**":
            fitting = {*fitting, at + 1}
    return fitting


def _is_name_as(name: str, pattern: str) -> bool:
    return fits(name, pattern) and (not name.startswith(".") or pattern.startswith("."))


_MODEL_FILES = frozenset(
    ("config.json", "generation_config.json", "hf_quant_config.json", "params.json", "quantize_config.json",
     "quant_config.json", "tokenizer_config.json", "model.safetensors.index.json")
)  # fmt: skip
_OF_MODEL = ("tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json")
_LOG_ENDS = (".log", ".out", ".err", ".txt")


def _is_model_folder(names: Sequence[str]) -> bool:
    """Tell a folder that holds a model by its config beside weights or a tokenizer."""
    return bool({"config.json", "params.json"}.intersection(names)) and any(
        name in _OF_MODEL or _is_weights(name) for name in names
    )


def _is_weights(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf")) or name.startswith(
        ("pytorch_model", "consolidated.")
    )


def _is_log_name(name: str) -> bool:
    stem = name.removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz").removesuffix(".zst")
    return stem.lower().endswith(_LOG_ENDS) and not stem.startswith(("merges.", "vocab."))


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(SNIFF)
    return bool(head) and (
        not is_binary(head) or any(head.startswith(magic) for magic, _ in MAGIC)
    )


def is_binary(head: bytes) -> bool:
    """Tell a file that is no text by its first bytes."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        return False
    if head[4:9] == b"\0\0\0\0{":
        # A safetensors file: the length of its header, and the header's JSON.
        return True
    odd = sum(head.count(byte) for byte in _CONTROL)
    return head.count(0) * 10 > len(head) or odd * 30 > len(head)


_CONTROL = tuple(bytes([code]) for code in (*range(1, 7), *range(14, 27), 127))
