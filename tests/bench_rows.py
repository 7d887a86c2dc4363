"""The rows of the table: each a ratio of ours to what a user would pick instead."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests import bench_logs, bench_rivals
from tests.bench_measure import Command, Took, growth, in_turn, latency, throughput
from tests.bench_rules import doubled

FILTER = (sys.executable, "-m", "vllm_triage", "filter", "--incidents", os.devnull)
_MB = 1_000_000
_MISSING = "not installed"


class Row(NamedTuple):
    """One row of the table."""

    work: str
    against: str
    ours: str
    theirs: str
    ratio: str
    bar: str
    is_met: bool | None
    """None where there is no bar, or nothing to compare with."""


@dataclass(frozen=True)
class Setting:
    """How large the logs are and how often a pair is run; logs are written once."""

    folder: Path
    size: int
    """Bytes of a log whose speed is measured; memory takes ten times as much."""
    rounds: int = 5
    _logs: dict[tuple[str, int], Path] = field(default_factory=dict)

    def log(self, name: str, size: int | None = None) -> Path:
        """A generated log of about this size."""
        size = size or self.size
        path = self._logs.get((name, size))
        if path is None:
            path = self.folder / f"{name}-{size}.log"
            make: Callable[[int], Iterator[bytes]] = getattr(bench_logs, name)
            with path.open("wb") as file:
                file.writelines(make(size))
            self._logs[name, size] = path
        return path

    def drop(self, name: str, size: int) -> None:
        """Take a log away that is not needed again."""
        self._logs.pop((name, size)).unlink()


class Speed(NamedTuple):
    """Triage of a log against a program that reads the same: how many times as fast."""

    log: str
    rival: Callable[[Path, Path], Command | None]
    against: str
    bar: float
    is_fast: bool = False
    least: float = 0
    """MB/s to reach as well."""


def _speeds(setting: Setting, some: Sequence[Speed], wanted: int | None = None) -> Iterator[Row]:
    """Programs that read one log, of another size where one is wanted, in turn."""
    path = setting.log(some[0].log, wanted)
    ours = (bench_rivals.ours_fast if some[0].is_fast else bench_rivals.ours)(str(path))
    rivals = [one.rival(path, setting.folder) for one in some]
    there = [rival for rival in rivals if rival is not None]
    found = in_turn([ours, *there], setting.rounds) if ours is not None and there else []
    rest = iter(found[1:])
    for one, rival in zip(some, rivals, strict=True):
        amount = f"{_size(wanted)} of " if wanted else ""
        work = f"triage of {amount}`{one.log}`{' with `[fast]`' if one.is_fast else ''}"
        bar = f"at least {one.bar:g}x" + (f" and {one.least:g} MB/s" if one.least else "")
        size = path.stat().st_size
        times = next(rest) if found and rival is not None else []
        ratios = (
            [a.wall_s / b.wall_s for a, b in zip(times, found[0], strict=True)] if times else []
        )
        speed = size / median(run.wall_s for run in found[0]) / _MB if found else 0.0
        yield Row(
            work,
            one.against,
            _mb(size, found[0]) if found else _MISSING if ours is None else "",
            _mb(size, times) if times else _MISSING if rival is None else "",
            _spread(ratios),
            bar,
            median(ratios) >= one.bar and speed >= one.least if ratios else None,
        )


def _mb(size: int, runs: Sequence[Took]) -> str:
    """Speed, and the processors that it took where more than one."""
    cores = median(run.cpu_s / run.wall_s for run in runs)
    speed = f"{size / median(run.wall_s for run in runs) / _MB:.4g} MB/s"
    return speed + (f", {cores:.1f} cores" if cores > 1.2 else "")


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    return f"{median(ratios):.3g}x ({min(ratios):.3g} to {max(ratios):.3g})"


def _filter_throughput(setting: Setting, protocol: str = "lines") -> Iterator[Row]:
    """A filter that is up, fed healthy lines, against cat."""
    data = setting.log("healthy", min(setting.size, 50 * _MB)).read_bytes()
    if protocol == "json":
        data = b"".join(bench_logs.records(data.splitlines()))
    ours = (*FILTER, "--protocol", protocol)
    found = [(throughput(ours, data), throughput(("cat",), data)) for _ in range(setting.rounds)]
    ratios = [one / other for one, other in found]
    yield Row(
        f"filter `--protocol {protocol}`, healthy lines, writes of 64 KiB",
        "`cat`",
        f"{median(one for one, _ in found) / _MB:.4g} MB/s",
        f"{median(other for _, other in found) / _MB:.4g} MB/s",
        _spread(ratios),
        "at least 0.3x" if protocol == "lines" else "",
        median(ratios) >= 0.3 if protocol == "lines" else None,
    )


def _filter_memory(setting: Setting) -> Iterator[Row]:
    """What a filter holds after a tenth of a stream and after all of it."""
    lines = max(setting.size // 100, 10)
    for name, args in (
        ("healthy", ()),
        ("processes", ()),
        ("restarts", ()),
        ("pods", ("--protocol", "json")),
    ):
        # A line of `healthy` has some 150 bytes; `restarts` gives ten lines at a time.
        made = getattr(bench_logs, name)(lines * 200 if name == "healthy" else lines)
        rows = chain.from_iterable(some.splitlines(keepends=True) for some in made)
        tenth, whole = growth((*FILTER, *args), islice(rows, lines), lines)
        yield Row(
            f"filter's memory after {lines:,} lines of `{name}`",
            "after a tenth",
            f"{whole / _MB:.0f} MB",
            f"{tenth / _MB:.0f} MB",
            f"{whole / tenth:.2f}x",
            "",
            None,
        )


def _filter_latency(setting: Setting) -> Iterator[Row]:
    """A line at a time through a filter that is up."""
    with setting.log("healthy", min(setting.size, 50 * _MB)).open("rb") as file:
        rows = list(islice(file, 1000))
    found = [
        (_p99(latency(FILTER, rows, 0.001)), _p99(latency(("cat",), rows, 0.001)))
        for _ in range(setting.rounds)
    ]
    more = [(ours - theirs) * 1000 for ours, theirs in found]
    yield Row(
        "filter, one line at a time, 99th percentile",
        "`cat`",
        f"{median(ours for ours, _ in found) * 1000:.3f} ms",
        f"{median(theirs for _, theirs in found) * 1000:.3f} ms",
        f"{median(more):+.3f} ms ({min(more):+.3f} to {max(more):+.3f})",
        "at most +1 ms",
        median(more) <= 1,
    )


def _p99(times: list[float]) -> float:
    return times[int(len(times) * 0.99)]


def _start(setting: Setting) -> Iterator[Row]:
    log = setting.log("busy", _MB)
    ours = Command((sys.executable, "-m", "vllm_triage", str(log)), (1,))
    theirs = Command((sys.executable, "-c", "import pydantic, click, regex"))
    found = in_turn([ours, theirs], setting.rounds)
    yield _times(
        "start: `vllm-triage` on 1 MB of `busy`", "`import pydantic, click, regex`", found, 2
    )


def _import(setting: Setting) -> Iterator[Row]:
    ours = Command((sys.executable, "-c", "import vllm_triage"))
    theirs = Command((sys.executable, "-c", "import pydantic"))
    found = in_turn([ours, theirs], setting.rounds)
    yield _times("`import vllm_triage`", "`import pydantic`", found, 1.15)


def _times(work: str, against: str, found: Sequence[Sequence[Took]], bar: float) -> Row:
    """Whole processes: how many times as long."""
    ours, theirs = found
    ratios = [a.wall_s / b.wall_s for a, b in zip(ours, theirs, strict=True)]
    return Row(
        work,
        against,
        f"{median(run.wall_s for run in ours):.3f} s",
        f"{median(run.wall_s for run in theirs):.3f} s",
        _spread(ratios),
        f"at most {bar:g}x",
        median(ratios) <= bar,
    )


def _large(setting: Setting, name: str) -> Iterator[Row]:
    """A row again, with ten times as much: the start counts for less."""
    one = _SPEEDS[name]
    size = setting.size * 10
    yield from _speeds(setting, [one], size)
    setting.drop(one.log, size)


def _memory(setting: Setting, log: str) -> Iterator[Row]:
    """The largest process of one run each: it does not vary from run to run."""
    large, small = (
        setting.log(log, setting.size * 10),
        setting.log(log, max(setting.size // 10, 1)),
    )
    ours, theirs = bench_rivals.ours(str(large)), bench_rivals.ours(str(small))
    (much,), (little,) = in_turn([ours, theirs], 1, warm=False)
    setting.drop(log, setting.size * 10)
    ratio = much.peak_bytes / little.peak_bytes
    yield Row(
        f"memory for {_size(setting.size * 10)} of `{log}`",
        f"for {_size(setting.size // 10)} of it",
        f"{much.peak_bytes / _MB:.0f} MB",
        f"{little.peak_bytes / _MB:.0f} MB",
        f"{ratio:.2f}x",
        "at most 1.2x and 150 MB",
        ratio <= 1.2 and much.peak_bytes <= 150 * _MB,
    )


def _size(size: int) -> str:
    return f"{size / 1e9:g} GB" if size >= 1e9 else f"{size / _MB:g} MB"


def _rules(setting: Setting, log: str) -> Iterator[Row]:
    """Every pattern a second time, from a folder, against the built-in ones alone."""
    path = str(setting.log(log))
    folder = doubled(setting.folder / "rules")
    ours = bench_rivals.ours("--rules", str(folder), path)
    found = in_turn([ours, bench_rivals.ours(path)], setting.rounds)
    yield _times(f"`{log}`, rules doubled", "rules once", found, 1.2)


_OTHERS = {
    "drain3": bench_rivals.drain3,
    "fail2ban": bench_rivals.fail2ban,
    "searchkit": bench_rivals.searchkit,
}
_SPEEDS = {
    "busy-grep": Speed("busy", bench_rivals.grep, "`grep -c -F -f keywords`", 1),
    **{f"busy-{name}": Speed("busy", one, name, 20) for name, one in _OTHERS.items()},
    "fast-rg": Speed("busy", bench_rivals.ripgrep, "`rg -c -F -f keywords`", 0.8, is_fast=True),
    **{
        f"fast-{name}": Speed("busy", one, name, 20, is_fast=True) for name, one in _OTHERS.items()
    },
    "dense-regex": Speed(
        "dense", bench_rivals.one_regex, "Python, one `regex` search a line", 1, least=20
    ),
    **{f"dense-{name}": Speed("dense", one, name, 20) for name, one in _OTHERS.items()},
}
_SINGLE: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "large-busy": partial(_large, name="busy-grep"),
    "large-dense": partial(_large, name="dense-regex"),
    "filter-throughput": _filter_throughput,
    "filter-json": partial(_filter_throughput, protocol="json"),
    "filter-latency": _filter_latency,
    "filter-memory": _filter_memory,
    "start": _start,
    "import": _import,
    "memory-busy": partial(_memory, log="busy"),
    "memory-dense": partial(_memory, log="dense"),
    "rules-busy": partial(_rules, log="busy"),
    "rules-dense": partial(_rules, log="dense"),
}
NAMES = (*_SPEEDS, *_SINGLE)
"""The rows' names, in the order of the table."""


def measure(setting: Setting, names: Sequence[str]) -> Iterator[Row]:
    """Give rows by their names, each when it is measured; what reads one log is run in turn."""
    for group, some in groupby(names, lambda name: name.partition("-")[0]):
        if group in ("busy", "fast", "dense"):
            yield from _speeds(setting, [_SPEEDS[name] for name in some])
            continue
        for name in some:
            yield from _SINGLE[name](setting)
