"""What the tool costs beside what a user would pick instead.

`python -m tests.bench` measures everything in one run and prints the table of
`docs/performance.md`; nothing here is a test.
"""

import argparse
import compileall
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import vllm_triage
from tests.anchors import anchors
from tests.bench_rows import NAMES, Row, Setting, measure
from vllm_triage.catalogue import load

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
_BEGIN = "<!-- figures -->"
_END = "<!-- end of figures -->"
_HEAD = ("work", "against", "ours", "theirs", "ratio", "bar", "met")
_PACKAGES = ("vllm-triage", "regex", "pydantic", "click", "hyperscan", "drain3", "searchkit")
_PROGRAMS = ("grep", "rg", "fail2ban-regex")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--size",
        type=int,
        default=100,
        help="megabytes of a log (%(default)s); memory takes ten times as much",
    )
    parser.add_argument("--rounds", type=int, default=5, help="pairs a row (%(default)s)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="5 megabytes, three pairs: whether it works, not how fast it is",
    )
    parser.add_argument(
        "--row",
        action="append",
        default=[],
        metavar="NAME",
        help="only the rows whose name begins so; may be given again",
    )
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument(
        "--write", action="store_true", help="also put the table into docs/performance.md"
    )
    options = parser.parse_args()
    names = [name for name in NAMES if not options.row or name.startswith(tuple(options.row))]
    if options.list or not names:
        print("\n".join(NAMES))  # noqa: T201
        sys.exit(0 if options.list else 2)
    size, rounds = (5, 3) if options.quick else (options.size, options.rounds)
    if options.write and _BEGIN not in PAGE.read_text("utf-8"):
        parser.error(f"{PAGE.name} has no line {_BEGIN}")
    # As installing does; where Python is told to write no bytecode each run would compile anew.
    compileall.compile_dir(Path(vllm_triage.__file__).parent, quiet=2)
    lines = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        setting = Setting(Path(folder), size * 1_000_000, rounds)
        for line in page(setting, names):
            print(line, flush=True)  # noqa: T201
            lines.append(line)
    if options.write:
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), lines), "utf-8")


def page(setting: Setting, names: list[str]) -> Iterator[str]:
    """Give the table in Markdown, each row when it is measured, and what it was measured on."""
    yield f"Measured {datetime.now(UTC):%Y-%m-%d} on {_machine()}."
    yield f"{_versions()}."
    yield f"Logs of {setting.size // 1_000_000} MB; medians of {setting.rounds} pairs, smallest and largest in brackets. {len(anchors(load()))} keywords."
    yield ""
    yield f"| {' | '.join(_HEAD)} |"
    yield "|" + "---|" * len(_HEAD)
    for row in measure(setting, names):
        yield _line(row)


def with_table(text: str, lines: list[str]) -> str:
    """The page with these lines between its marks."""
    before, _, rest = text.partition(_BEGIN)
    after = rest.partition(_END)[2]
    return "\n".join((before + _BEGIN, "", *lines, "", _END + after))


def _line(row: Row) -> str:
    met = {True: "yes", False: "no", None: ""}[row.is_met]
    return f"| {' | '.join((*row[:-1], met))} |"


def _machine() -> str:
    text = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    found = [
        line.partition(": ")[2] for line in text.splitlines() if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    name = found[0] if found else platform.machine()
    return f"{platform.system()}, {len(os.sched_getaffinity(0))} x {name}, {memory:.0f} GiB"


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join((*found, *map(_program, _PROGRAMS)))


def _program(name: str) -> str:
    if not shutil.which(name):
        return f"no {name}"
    done = subprocess.run((name, "--version"), capture_output=True, text=True, check=False)
    return next(iter(done.stdout.splitlines()), name)


if __name__ == "__main__":
    main()
