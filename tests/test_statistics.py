"""Engine statistics: what lasts in them is told, what passes is not."""

import random
from collections.abc import Iterable

import pytest

from tests.test_sieve import Noting, at_once, one_by_one, told
from tests.traffic import FIXTURES
from vllm_triage import triage
from vllm_triage.plateaus import Plateaus, Steady

BANNER = "(APIServer pid=1) INFO 05-16 09:59:00 [api_server.py:1] vLLM API server version 0.10.2"


def window(
    number: int,
    *,
    prompt: float = 0.0,
    generation: float = 400.0,
    running: int = 4,
    waiting: int = 0,
    cache: float = 3.1,
    rise: float = 0.0,
    engine: str = "Engine 000: ",
    head: str = "(APIServer pid=1) INFO",
) -> str:
    return (
        f"{head} 05-16 10:{number // 6 % 60:02}:{number % 6}0 [loggers.py:248] {engine}Avg prompt throughput: {prompt} tokens/s, "
        f"Avg generation throughput: {generation} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
        f"GPU KV cache usage: {cache + rise * number:.1f}%, Prefix cache hit rate: 12.4%"
    )


def kinds(rows: Iterable[str]) -> list[str]:
    return [incident.kind.value for incident in triage(iter(rows)).incidents]


def facts(rows: Iterable[str]) -> dict[str, object]:
    (incident,) = triage(iter(rows)).incidents
    return incident.facts.model_dump(exclude_none=True)


KV, TTFT, SLOW = (
    "performance.kv_cache_pressure",
    "performance.high_ttft",
    "performance.slow_decode",
)


@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        ({"cache": 95.0, "waiting": 1}, KV),
        ({"cache": 94.9, "waiting": 1}, None),
        ({"cache": 99.9, "waiting": 0}, None),
        ({"cache": 80.0, "waiting": 1}, TTFT),
        ({"cache": 80.1, "waiting": 1}, None),
        ({"cache": 3.1, "waiting": 0}, None),
        ({"generation": 10.0, "running": 1}, SLOW),
        ({"generation": 10.1, "running": 1}, None),
        ({"generation": 80.0, "running": 8}, SLOW),
        ({"generation": 80.9, "running": 8}, None),
        ({"generation": 9.0, "running": 1, "prompt": 50.0}, SLOW),
        ({"generation": 9.0, "running": 1, "prompt": 50.1}, None),
        ({"generation": 9.0, "running": 1, "waiting": 1, "cache": 90.0}, None),
        ({"generation": 9.0, "running": 1, "rise": 0.5}, SLOW),
        ({"generation": 9.0, "running": 1, "rise": 0.6}, None),
        ({"generation": 18.0, "running": 2, "rise": 1.0}, SLOW),
        ({"generation": 0.0, "running": 1, "rise": 8.1}, None),
        ({"generation": 0.0, "running": 0}, None),
    ],
)
def test_each_threshold_holds_from_both_sides(shown: dict[str, float], kind: str | None) -> None:
    rows = [window(number, **shown) for number in range(4)]  # type: ignore[arg-type]

    assert kinds(rows) == ([kind] if kind else [])


@pytest.mark.parametrize(
    "shown",
    [{"cache": 99.0, "waiting": 5}, {"waiting": 5}, {"generation": 5.0, "running": 1}],
)
def test_a_state_must_last_three_windows(shown: dict[str, float]) -> None:
    bad = [window(number, **shown) for number in range(3)]  # type: ignore[arg-type]
    idle, good = window(9, generation=0.0, running=0), window(9)

    assert kinds(bad) != []
    assert kinds(bad[:2]) == []
    assert kinds([*bad[:2], good, *bad[:2]]) == []
    # The first after an idle time averages over part of it.
    assert kinds([*bad[:2], idle, *bad[:3]]) == []
    assert kinds([*bad[:2], idle, *bad, bad[0]]) != []


def table(
    *,
    ttft: float = 200.0,
    tpot: float = 20.0,
    tokens: float = 900.0,
    served: float = 4.0,
    done: int = 100,
) -> list[str]:
    return [
        "============ Serving Benchmark Result ============",
        f"Successful requests:                     {done}",
        "Benchmark duration (s):                  90.00",
        f"Request throughput (req/s):              {served}",
        f"Output token throughput (tok/s):         {tokens}",
        "---------------Time to First Token----------------",
        f"Mean TTFT (ms):                          {ttft}",
        f"Median TTFT (ms):                        {ttft}",
        "-----Time per Output Token (excl. 1st token)------",
        f"Mean TPOT (ms):                          {tpot}",
        "==================================================",
        "",
    ]


LOW = "performance.low_throughput"
FEW: dict[str, float] = {"tokens": 200.0, "served": 1.0, "done": 20}


@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        ({}, None),
        ({"ttft": 1000.0}, TTFT),
        ({"ttft": 999.99}, None),
        ({"tpot": 100.0}, SLOW),
        ({"tpot": 99.99}, None),
        ({"ttft": 1000.1, "tpot": 100.0}, TTFT),
        (FEW, LOW),
        (FEW | {"tokens": 200.01}, None),
        (FEW | {"served": 1.01}, None),
        (FEW | {"done": 19}, None),
        (FEW | {"tpot": 100.0}, SLOW),
        (FEW | {"ttft": 1000.0}, TTFT),
    ],
)
def test_each_threshold_of_a_benchmark_s_table_holds_from_both_sides(
    shown: dict[str, float], kind: str | None
) -> None:
    assert kinds(table(**shown)) == ([kind] if kind else [])  # type: ignore[arg-type]


def engines(*shown: dict[str, float]) -> list[str]:
    return [
        window(number, engine=f"Engine 00{index}: ", **one)  # type: ignore[arg-type]
        for number in range(3)
        for index, one in enumerate(shown)
    ]


def test_each_engine_has_its_own_windows() -> None:
    full, idle = {"cache": 99.0, "waiting": 5}, {"generation": 0.0, "running": 0}

    assert kinds(engines(full, {}, idle)) == [KV]
    assert kinds(engines(full, full, full)[:3]) == []


DRAFTS = (
    "(APIServer pid=1) INFO 05-16 10:00:50 [metrics.py:96] SpecDecoding metrics: "
    "Mean acceptance length: 3.10, Accepted throughput: 21.00 tokens/s"
)
FAST = [window(number, generation=400.0 - number % 3) for number in range(4)]


def slow(count: int = 6, **shown: float) -> list[str]:
    shown = {"generation": 60.0, **shown}
    return [window(10 + number, **shown) for number in range(count)]  # type: ignore[arg-type]


def test_generation_that_falls_with_as_many_requests_is_told_with_what_it_was() -> None:
    found = facts([*FAST, *slow()])

    # The slowest of the three windows in a row that make the best plateau.
    assert found["earlier_generation_tokens_per_s"] == 398.0
    assert found["generation_tokens_per_s"] == 60.0
    assert found["generation_of_earlier_pct"] == pytest.approx(15.1, abs=0.1)
    assert found["windows"] == 6


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (slow(), "nothing was faster"),
        ([*FAST, *slow(5)], "it did not last"),
        ([*FAST[:2], *slow()], "it was not fast for long"),
        ([*FAST, *slow(generation=100.0)], "more than a quarter is left"),
        ([*FAST, *slow(generation=84.0, running=4)], "over 20 tokens a second each"),
        ([*FAST, *slow(running=3)], "fewer requests run"),
        ([*FAST, *slow(prompt=50.1)], "prompts are computed"),
        ([*FAST, *slow(cache=4.7)], "the contexts are longer"),
        ([*FAST, *slow(waiting=1, cache=90.0)], "requests wait"),
        ([*FAST, *slow(3), window(13), *slow(3)], "it recovered in between"),
        ([BANNER, *FAST, BANNER, *slow()], "it is another run"),
        ([*FAST, *(row.replace("000", "001") for row in slow())], "it is another engine"),
        (
            [window(n, generation=400.0, prompt=60.0) for n in range(4)] + slow(),
            "prompts were computed before",
        ),
        (
            [window(n, generation=400.0, running=4 + n % 2) for n in range(6)] + slow(),
            "the number of requests was not the same",
        ),
        (
            [
                *FAST,
                DRAFTS,
                *slow(),
            ],
            "how many drafts are accepted depends on the text",
        ),
    ],
)
def test_a_fall_with_another_reason_is_not_told(rows: list[str], why: str) -> None:
    assert kinds(rows) == [], why


@pytest.mark.parametrize(
    "shown",
    [
        {"running": 4, "cache": 4.6},
        {"running": 7, "generation": 90.0},
        {"prompt": 50.0},
        {"generation": 80.0, "running": 4},
    ],
)
def test_a_fall_is_told_up_to_its_bounds(shown: dict[str, float]) -> None:
    assert kinds([*FAST, *slow(**shown)]) == [SLOW]  # type: ignore[arg-type]


V0 = (
    "INFO 12-19 19:52:{:02} metrics.py:345] Avg prompt throughput: 3200.1 tokens/s, Avg generation throughput: 12.0 tokens/s, "
    "Running: 5 reqs, Swapped: 0 reqs, Pending: 9 reqs, GPU KV cache usage: 31.0%, CPU KV cache usage: 0.0%."
)
HITS = "INFO 12-19 19:52:{:02} metrics.py:361] Prefix cache hit rate: GPU: {}%, CPU: 0.00%"


def test_the_prefix_cache_s_hit_rate_is_a_fact_wherever_it_is_printed() -> None:
    rows = [text for n in range(5) for text in (V0.format(n), HITS.format(n, f"{n}0.25"))]

    # The match stands on the first window of three; the line beside it comes after it.
    assert "prefix_cache_hit_pct" not in facts(rows)
    assert facts([HITS.format(0, "7.50"), *rows])["prefix_cache_hit_pct"] == 7.5
    assert facts([window(n, waiting=3) for n in range(3)])["prefix_cache_hit_pct"] == 12.4


@pytest.mark.parametrize(
    ("log", "stated"),
    [
        ("0_2_7-cache-full", {"running": 88, "waiting": 3, "kv_cache_usage_pct": 95.6}),
        ("0_4_3-preempted", {"preemptions": 51}),
        ("0_5_5-queue-with-prefix-hits", {"waiting": 30, "prefix_cache_hit_pct": 84.1}),
        ("0_6_6-preempted", {"preemptions": 51}),
        ("0_6_6-swapped-out", {"swapped": 4, "kv_cache_usage_pct": 92.8}),
        ("0_7_3-v1-queue", {"waiting": 24, "prompt_tokens_per_s": 9020.7}),
        ("0_8_5-slow-with-drafts", {"generation_tokens_per_s_per_request": 3.4}),
        ("0_10_2-one-of-two-engines-full", {"running": 64, "waiting": 9}),
        ("0_10_2-generation-fell", {"earlier_generation_tokens_per_s": 229.9}),
        ("0_11_2-preemptions", {"preemptions": 2, "prefix_cache_hit_pct": 41.0}),
        ("0_20_2-deferred", {"waiting": 40, "kv_cache_usage_pct": 19.3}),
        ("0_32_0-cache-full", {"waiting": 7, "kv_cache_usage_pct": 96.3}),
        ("0_33_0-aggregated", {"running": 250, "kv_cache_usage_pct": 95.3}),
    ],
)
def test_each_release_s_form_of_the_line_gives_its_numbers(
    log: str, stated: dict[str, float]
) -> None:
    (incident,) = triage(FIXTURES / "performance" / f"{log}.log").incidents

    assert incident.facts.model_dump().items() >= stated.items()


@pytest.mark.parametrize(
    "head",
    [
        "",
        "Engine 000: ",
        "INFO 02-01 06:36:05 llm_engine.py:921] ",
        "INFO 2025-09-10 16:32:05.957 metrics.py:386] ",
        "INFO 2025-09-10 16:32:05,957 [loggers.py:87] Engine 000: ",
        "(ServeReplica:default:VLLM pid=12) INFO 05-02 10:00:00 [loggers.py:87] Engine 000: ",
        "(APIServer pid=145) [vllm-npu] INFO 2026-10-07 22:01:17,796 [loggers.py:248] Engine 000: ",
        "2026-03-01T10:00:00.123456Z  INFO server::stats: ",
        "2026-03-01 10:00:00,123 - vllm.v1.metrics.loggers - INFO - Engine 000: ",
        "[2026-03-01 10:00:00] INFO loggers.py:87: Engine 000: ",
    ],
)
def test_the_line_is_known_behind_any_logger_s_prefix(head: str) -> None:
    rows = [head + window(n, cache=99.0, waiting=3).partition("Engine 000: ")[2] for n in range(3)]

    assert kinds(rows) == [KV]


@pytest.mark.parametrize(
    "head",
    [
        "INFO 05-16 10:00:00 [logger.py:40] Received request cmpl-1: prompt: INFO: ",
        "INFO 05-16 10:00:00 [logger.py:40] Received request cmpl-1: prompt: 'INFO: ",
        "WARNING 05-16 10:00:00 [serving.py:1] bad input {'text': 'why is this: ",
    ],
)
def test_a_line_that_a_user_quotes_is_none(head: str) -> None:
    rows = [head + window(n, cache=99.0, waiting=3).partition("Engine 000: ")[2] for n in range(3)]

    assert kinds(rows) == []


def test_what_an_unknown_field_says_does_not_hide_the_rest() -> None:
    odd = "Avg time/tok: 149.4 ms, Running: "
    rows = [window(n, cache=99.0, waiting=3).replace("Running: ", odd) for n in range(3)]

    assert kinds(rows) == [KV]


@pytest.mark.parametrize(("hits", "is_left"), [(79.9, True), (80.0, False)])
def test_a_prefix_cache_that_hits_nearly_always_is_not_asked_to_do_more(
    hits: float, is_left: bool
) -> None:
    rows = [window(n, waiting=3).replace("12.4%", f"{hits}%") for n in range(3)]
    (incident,) = triage(iter(rows)).incidents
    (step,) = [one for one in incident.fix_steps if "repeated prefixes" in one.do]

    assert (step.command is not None) == is_left


def test_plateaus_are_kept_for_a_bounded_number_of_loads() -> None:
    plateaus = Plateaus(run=1)
    for running in range(1, 1000):
        for _ in range(3):
            plateaus.take(Steady(running, 100.0, 1.0))

    assert len(plateaus._best) == 64
    assert plateaus.earlier(Steady(1000, 10.0, 1.0)) == 100.0


def mixed(seed: int, count: int) -> list[str]:
    """Plateaus and falls of several engines, with idle times, restarts and what is printed beside."""
    chance = random.Random(seed)
    rows: list[str] = [BANNER]
    for number in range(count):
        what = chance.random()
        if what < 0.03:
            rows.append(BANNER if what < 0.01 else HITS.format(number % 60, chance.randrange(100)))
        elif what < 0.032 and seed == 2:
            rows.append(DRAFTS)
        elif what < 0.1:
            rows.append(
                '(APIServer pid=1) INFO:     10.0.0.1:1234 - "POST /v1/completions HTTP/1.1" 200 OK'
            )
        engine = chance.choice(("Engine 000: ", "Engine 001: ", "2 Engines Aggregated: "))
        state = chance.choice((0, 0, 0, 1, 1, 1, 2, 3))
        rows += [
            window(
                number,
                engine=engine,
                running=(4, 4, 0, 4)[state],
                generation=(400.5, 60.5, 0.0, 200.0)[state],
                prompt=(0.0, 0.0, 0.0, 80.0)[state],
            )
        ] * chance.randrange(1, 9)
    return rows


@pytest.mark.parametrize("size", [300, 65536])
@pytest.mark.parametrize("seed", range(3))
def test_windows_that_are_not_read_tell_the_same(seed: int, size: int) -> None:
    data = "\n".join(mixed(seed, 300)).encode()
    read = one_by_one(data)

    assert SLOW in str(read.noted)
    found = at_once(data, size)
    assert told(found) == told(read)
    assert history(found) == history(read)


def history(scanner: Noting) -> object:
    windows = scanner._assembler._windows
    return {key: vars(plateaus) for key, plateaus in windows._plateaus.items()}
