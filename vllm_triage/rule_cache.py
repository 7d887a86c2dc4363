"""Rule cache: what the rules in a user's folder say, kept so that the next start need not check them.

Parsing TOML and holding rules to what they may say takes half a second for a few hundred. What
is kept is JSON, which can run nothing whoever wrote it, in a folder of the user's own. It is
found by the very content of the rules; whatever is wrong with it, the rules are read anew.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vllm_triage.prefilter import Ways
from vllm_triage.versions import __version__

OFF_VARIABLE = "VLLM_TRIAGE_NO_CACHE"
_MAX_KEPT = 32
_FORMAT = 2
# A checkout's change in what is checked.
_CHECKS = (
    "kinds.py", "rules.py", "rule_files.py", "catalogue.py", "templates.py", "necessary.py", "syntax.py", "proofs.py",
)  # fmt: skip

Contents = Mapping[str, bytes]
"""The files of a folder by their names in it."""


class Known(NamedTuple):
    """What is known of a folder's files."""

    files: dict[str, dict[str, Any]]
    """What each of them says, as plain data that has been checked."""
    prefilter: dict[str, Ways]
    """What a text must hold for a regex of theirs to match it."""
    unmet: list[str]
    """The patterns that miss their own hits, each with its file."""


def folder() -> Path | None:
    """Where it is kept; None where the user wants none or has no place for it."""
    if os.environ.get(OFF_VARIABLE):
        return None
    named = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # noqa: PTH117
        return Path(named, "vllm-triage")
    home = os.path.expanduser("~")  # noqa: PTH111
    if not os.path.isabs(home):  # noqa: PTH117
        return None
    return Path(home, "Library/Caches" if sys.platform == "darwin" else ".cache", "vllm-triage")


def read(contents: Contents) -> Known | None:
    """What files with these contents say; None where that is not known."""
    place = folder()
    if place is None or not _is_ours(place):
        return None
    path = place / _name(contents)
    if not _is_ours(path):
        return None
    try:
        digest, _, body = path.read_bytes().partition(b"\n")
        if digest != _digest(body):
            return None
        import json

        said, asked, unmet = json.loads(body)
        if [*said] != [*contents]:
            return None
        prefilter = {text: tuple(map(tuple, ways)) for text, ways in asked.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return Known(said, prefilter, [str(one) for one in unmet])


def write(contents: Contents, known: Known) -> None:
    """Keep what files say, if that can be done."""
    place = folder()
    if place is None:
        return
    import json
    import tempfile

    body = json.dumps(known, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    try:
        if not _made(place):
            return
        with tempfile.NamedTemporaryFile(dir=place, prefix="rules-", delete=False) as file:
            file.write(_digest(body) + b"\n" + body)
        os.replace(file.name, place / _name(contents))  # noqa: PTH105
        kept = sorted(place.glob("rules-*"), key=lambda path: path.stat().st_mtime_ns)
        for path in kept[:-_MAX_KEPT]:
            path.unlink(missing_ok=True)
    except OSError:
        return


def _made(place: Path) -> bool:
    """Make the folder for this user alone; not in what belongs to another, as under sudo."""
    if not place.exists():
        above = next(one for one in place.parents if one.exists())
        if not _is_ours(above):
            return False
        # Not a home that is missing.
        place.parent.mkdir(exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
    return _is_ours(place)


def _is_ours(path: Path) -> bool:
    """Tell whether it belongs to this user and nobody else may write to it; False where it is not there."""
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return False
    if sys.platform == "win32":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _name(contents: Contents) -> str:
    import regex

    times = [(Path(__file__).parent / name).stat().st_mtime_ns for name in _CHECKS]
    parts = [repr((_FORMAT, __version__, regex.__version__, times)).encode("utf-8")]
    for name, content in contents.items():
        parts += (name.encode("utf-8", "surrogateescape"), content)
    whole = b"".join(b"%d:%b" % (len(part), part) for part in parts)
    return f"rules-{_digest(whole).decode('ascii')}.json"


def _digest(data: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(data).hexdigest().encode("ascii")
