"""Outputs: files that are written whole or not at all."""

import contextlib
import os
import stat
from pathlib import Path

from vllm_triage.errors import SourceError
from vllm_triage.paths import shown

_PRIVATE = 0o600
_USUAL = 0o666


def check_target(path: Path) -> Path:
    """Where a file of this name is to be written. Raises SourceError for what is no regular file."""
    target, mode = _target(path)
    if mode is not None and not stat.S_ISREG(mode):
        message = f"{shown(path)}: is no regular file; name a file to write, as bundle.zip"
        raise SourceError(message)
    return target


def write(path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Write a file in one step, so that no reader sees half of it and a full disk leaves what was there.

    A private one can be read by its owner only, others keep their mode. What is no regular file,
    as a FIFO or /dev/stdout, is written to as it is.
    Raises SourceError, BrokenPipeError where the reader of a FIFO has gone.
    """
    target, before = _target(path)
    mode = _PRIVATE if is_private else None if before is None else stat.S_IMODE(before)
    try:
        if before is not None and not stat.S_ISREG(before):
            with target.open("wb") as device:
                device.write(data)
            return
        try:
            _replace(target, data, mode)
        except PermissionError:
            # The folder takes no new files; the file itself may be written.
            if is_private or before is None:
                raise
            _overwrite(target, data)
    except BrokenPipeError:
        raise
    except OSError as error:
        message = (
            f"{shown(path)}: cannot be written: {error.strerror or error}; choose another file"
        )
        raise SourceError(message) from None


def _target(path: Path) -> tuple[Path, int | None]:
    """The file that a name stands for, and its mode; None where there is none yet."""
    try:
        mode = path.stat().st_mode
        # A link goes on pointing to its file; what /dev/stdout points to has no name.
        return (path.resolve() if stat.S_ISREG(mode) else path), mode
    except FileNotFoundError:
        target = path.resolve()
        if not target.parent.is_dir():
            message = f"{shown(path)}: there is no such folder; make it first"
            raise SourceError(message) from None
        return target, None
    except (OSError, RuntimeError, ValueError) as error:
        message = f"{shown(path)}: cannot be written: {getattr(error, 'strerror', None) or error}; choose another file"
        raise SourceError(message) from None


def _replace(target: Path, data: bytes, mode: int | None) -> None:
    """Put a new file into the place of another."""
    beside = target.parent / f".{target.name[:80]}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    file = os.open(beside, flags, _USUAL if mode is None else _PRIVATE)
    try:
        with open(file, "wb") as opened:  # noqa: PTH123
            opened.write(data)
        if mode is not None:
            beside.chmod(mode)
        beside.replace(target)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def _overwrite(target: Path, data: bytes) -> None:
    with target.open("r+b") as opened:
        opened.truncate(0)
        try:
            opened.write(data)
            opened.flush()
        except OSError:
            # Half a report would look like a whole one.
            os.ftruncate(opened.fileno(), 0)
            raise
