"""What a user would pick instead, each as a command that reads one log; None where it is not installed."""

import importlib.util
import shutil
import sys
from pathlib import Path

from tests import bench_scripts
from tests.anchors import anchors
from tests.bench_measure import Command
from vllm_triage.catalogue import load

_FILTER = f"""\
[Definition]
failregex = ^<F-ID>.*?</F-ID>(?:{bench_scripts.WORDS})
datepattern = {{NONE}}
"""


def ours(*args: str) -> Command:
    """Our command, with the plain gate."""
    start = "import sys; sys.modules['hyperscan'] = None; from vllm_triage.cli import main; main()"
    return Command((sys.executable, "-c", start, *args), (0, 1))


def ours_fast(*args: str) -> Command | None:
    """Our command with `[fast]`; None where that is not installed."""
    if importlib.util.find_spec("hyperscan") is None:
        return None
    return Command((sys.executable, "-m", "vllm_triage", *args), (0, 1))


def keywords(folder: Path) -> Path:
    """A file with the plain texts that our own gate looks for, one a line."""
    path = folder / "keywords"
    if not path.exists():
        path.write_text("".join(f"{word}\n" for word in anchors(load())), "utf-8")
    return path


def grep(log: Path, folder: Path) -> Command | None:
    return _program("grep", "-c", "-F", "-f", str(keywords(folder)), str(log), locale="C")


def ripgrep(log: Path, folder: Path) -> Command | None:
    return _program("rg", "-c", "-F", "-f", str(keywords(folder)), str(log), locale="C")


def one_regex(log: Path, folder: Path) -> Command:
    del folder
    return _ours("regex", log)


def drain3(log: Path, folder: Path) -> Command | None:
    del folder
    return _ours("drain3", log) if importlib.util.find_spec("drain3") else None


def searchkit(log: Path, folder: Path) -> Command | None:
    del folder
    return _ours("searchkit", log) if importlib.util.find_spec("searchkit") else None


def fail2ban(log: Path, folder: Path) -> Command | None:
    path = folder / "filter.conf"
    path.write_text(_FILTER, "utf-8")
    return _program("fail2ban-regex", "--print-no-missed", "--no-check-all", str(log), str(path))


def _program(name: str, *args: str, locale: str | None = None) -> Command | None:
    return Command((name, *args), (0, 1), locale) if shutil.which(name) else None


def _ours(name: str, log: Path) -> Command:
    return Command((sys.executable, bench_scripts.__file__, name, str(log)))
