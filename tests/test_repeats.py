"""What is said again and again is read faster, and read the same."""

import random
from collections.abc import Iterable, Iterator

import pytest

from tests.conftest import Fixture, fixtures, name_of
from vllm_triage import Report, Scanner, triage
from vllm_triage.candidates import compiled, is_blind
from vllm_triage.catalogue import load
from vllm_triage.express import Express
from vllm_triage.kinds import Kind

CATALOGUE = load()
PATTERNS = [pattern for rule in CATALOGUE.rules.values() for pattern in rule.worded]
OTHER_DIGITS = str.maketrans("0123456789", "3572946018")
LOGS = [one for one in fixtures() if one.log.stat().st_size < 60_000]
FRAMES = [
    ("vllm/v1/executor/multiproc_executor.py", 654, "worker_busy_loop", "output = func(*args, **kwargs)"),
    ("vllm/v1/worker/gpu_worker.py", 436, "execute_model", "output = self.model_runner.execute_model("),
    ("torch/nn/modules/linear.py", 125, "forward", "return F.linear(input, self.weight, self.bias)"),
]  # fmt: skip
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {} has a total capacity of 79.15 GiB of which 3.50 MiB is free."
AGAIN = ("", "During handling of the above exception, another exception occurred:", "")


def traceback(rank: int, links: int, frames: int = 3) -> Iterator[str]:
    """A chain of so many exceptions, each with its frames."""
    for link in range(links):
        yield from AGAIN if link else ("WorkerProc hit an exception.",)
        yield "Traceback (most recent call last):"
        for number in range(frames):
            file, line, function, source = FRAMES[number % len(FRAMES)]
            yield f'  File "/usr/lib/python3.12/site-packages/{file}", line {line + number // 3}, in {function}'
            yield f"    {source}"
            yield "             ^^^^^^^^^^^^^^^^^^^^^"
        yield OOM.format(rank)


def workers(count: int, links: int, first_pid: int, seed: int = 1) -> Iterator[str]:
    """What workers that die together print, line by line as they come."""
    chance = random.Random(seed)
    alive = {rank: traceback(rank, links) for rank in range(count)}
    while alive:
        rank = chance.choice(list(alive))
        text = next(alive[rank], None)
        if text is None:
            del alive[rank]
        else:
            yield f"(Worker_TP{rank} pid={first_pid + rank}) ERROR 12-01 06:30:00 [multiproc_executor.py:654] {text}"


def takes(express: Express, number: int, line: str) -> bool:
    """Whether a line takes the short road."""
    return express.take(number, iter([(number, line.encode())])) is None


def scanned(lines: Iterable[str], *, express: bool = True) -> tuple[Report, int]:
    """The answer, and how many lines took the short road."""
    scanner = Scanner(catalogue=CATALOGUE)
    taken = 0
    for number, line in enumerate(lines, 1):
        if express and line.isascii() and takes(scanner._express, number, line):
            scanner.number = number
            taken += 1
            continue
        for item in scanner._unwrapper.feed(number, line):
            scanner.number = number
            scanner._text(item.number, item.text, line if not item.unwrapped else item.text, item)
    scanner.end_source()
    return scanner.report(), taken


def places(expression: str, text: str) -> tuple[tuple[int, int], ...] | None:
    """Where a regex and its groups are found."""
    found = compiled(expression).search(text)
    return None if found is None else tuple(found.regs)


def test_a_crash_loop_is_read_the_same_by_the_short_road() -> None:
    rows = [row for life in range(4) for row in workers(8, life + 1, 1000 + 100 * life, life)]

    short, taken = scanned(rows)
    long, none = scanned(rows, express=False)

    assert none == 0
    assert taken > len(rows) / 2
    assert short == long
    assert short.incidents[0].kind is Kind.OOM_INFERENCE
    assert short.incidents[0].count == 8 * 4


@pytest.mark.parametrize("fixture", LOGS, ids=name_of)
def test_every_log_is_read_the_same_by_the_short_road(fixture: Fixture) -> None:
    lines = fixture.log.read_bytes().decode("utf-8", "replace").split("\n")

    assert scanned(lines)[0] == scanned(lines, express=False)[0]


def test_a_cut_traceback_tells_what_was_raised_by_the_short_road_too() -> None:
    head = "(EngineCore_DP0 pid=7) ERROR 12-01 06:30:00 [core.py:700] "
    rows = [
        head + text
        for text in (
            "Traceback (most recent call last):",
            '  File "/usr/lib/site-packages/vllm/v1/core/kv_cache_utils.py", line 699, in check',
            '    raise ValueError("No available memory for the cache blocks. "',
            '                     "Try increasing `gpu_memory_utilization`.")',
        )
    ]

    report, taken = scanned(rows)

    assert taken == 3
    assert report == scanned(rows, express=False)[0]
    assert report.root is not None
    assert (report.root.kind, report.root.evidence[0].line) == (Kind.OOM_KV_CACHE, 3)
    assert report.root.evidence[0].text == rows[2]


@pytest.mark.parametrize(
    "text",
    [
        "    found NCCL version 2.21.5",
        '    self.content = {"content": "CUDA out of memory"}',
        "    Traceback (most recent call last):",
        "    The above exception was the direct cause of the following exception:",
        "    /usr/lib/vllm-0.9.1.dist-info/METADATA",
        "    vLLM API server version 0.9.1",
        "    \x1b[31mred",
        "    a &amp; b",
        " one blank",
        "    [Rank 3] watchdog",
        "    plain() [repeated 3x across cluster]",
        "    ü",
    ],
)
def test_what_may_say_more_takes_the_long_road(text: str) -> None:
    head = "(Worker pid=7) ERROR 12-01 06:30:00 [core.py:700] "
    scanner = Scanner(catalogue=CATALOGUE)
    for row in ("Traceback (most recent call last):", '  File "/x/vllm/a.py", line 1, in f'):
        list(scanner.feed(head + row))
    express: Express = scanner._express

    assert takes(express, 3, head + "    plain()")
    assert not takes(express, 4, head + text)


def test_one_death_that_prints_growing_tracebacks_is_one_incident(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As one engine did: 93 tracebacks, each with one exception more than the one before."""
    path = tmp_path_factory.mktemp("log") / "engine.log"
    head = "(EngineCore_DP0 pid=7) ERROR 12-01 06:30:00 [core.py:700] "
    rows = [head + text for links in range(1, 94) for text in traceback(0, links)]
    path.write_text("\n".join(rows) + "\n")

    report = triage(path)

    assert len(rows) > 41_340
    assert [one.kind for one in report.incidents if one.caused_by is None] == [Kind.OOM_INFERENCE]
    assert len(report.incidents) <= 2


def test_a_regex_that_is_blind_to_digits_finds_the_same_in_others() -> None:
    blind = [pattern for pattern in PATTERNS if is_blind(pattern.regex)]
    unlike = [
        (pattern.name, text)
        for pattern in blind
        for text in (*pattern.hits, *pattern.misses)
        if places(pattern.regex, text) != places(pattern.regex, text.translate(OTHER_DIGITS))
    ]

    assert len(blind) > len(PATTERNS) / 2
    assert unlike == []


@pytest.mark.parametrize(
    ("text", "blind"),
    [
        (r"GPU (?P<gpu_index>\d+) of \w{1,40}", True),
        (r"[0-9a-f]{4}", True),
        (r"[^0-9]", True),
        (r"exit code 137", False),
        (r"status [45]\d\d", False),
        (r"v0-9", False),
        (r"\[0-9", False),
        (r"(?P<a>\d+) (?P=a)", False),
        (r"(\d+) \1", False),
    ],
)
def test_which_regexes_are_blind_to_digits(text: str, *, blind: bool) -> None:
    assert is_blind(text) is blind
