"""Scrapes of `/metrics`: what each engine's counters, gauges and histograms say of its requests.

vLLM has renamed several of them; a name of every release since 0.2 is known here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from vllm_triage.artefacts.exposition import Sample, Scrape, scrapes
from vllm_triage.artefacts.histograms import Histogram
from vllm_triage.artefacts.observations import Observation, Reading, Value
from vllm_triage.lines import Line

_MAX_ENGINES = 1024
_MAX_BUCKETS = 512
_MAX_KINDS = 4096
# Labels that tell one engine from another; a collector adds its own. Triton's backend says `model`.
_PLACE = ("cluster", "namespace", "job", "instance", "pod", "container", "node", "ReplicaId", "WorkerId")  # fmt: skip
_ENGINE = ("model_name", "model", "engine")
_GAUGES = {
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
    "num_requests_swapped": "swapped",
    "kv_cache_usage_perc": "kv_cache_usage_pct",
    "gpu_cache_usage_perc": "kv_cache_usage_pct",
    "gpu_prefix_cache_hit_rate": "prefix_cache_hit_pct",
    "avg_prompt_throughput_toks_per_s": "prompt_tokens_per_s",
    "avg_generation_throughput_toks_per_s": "generation_tokens_per_s",
}
_COUNTERS = {
    "num_preemptions": "preemptions",
    "prompt_tokens": "prompt_tokens",
    "generation_tokens": "generation_tokens",
    "prefix_cache_queries": "prefix_cache_queries",
    "gpu_prefix_cache_queries": "prefix_cache_queries",
    "prefix_cache_hits": "prefix_cache_hits",
    "gpu_prefix_cache_hits": "prefix_cache_hits",
    "spec_decode_num_accepted_tokens": "accepted_tokens",
}
_REASONS = {"abort": "aborted_requests", "error": "failed_requests"}
_HISTOGRAMS = {
    "time_to_first_token_seconds": "ttft",
    "request_time_per_output_token_seconds": "request_tpot",
    "inter_token_latency_seconds": "itl",
    "time_per_output_token_seconds": "itl",
    "e2e_request_latency_seconds": "e2e",
    "request_queue_time_seconds": "queue",
    "time_in_queue_requests": "queue",
}
_PARTS = ("_bucket", "_sum", "_count")
_CREATED = "_created"
_QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99}
# Which line shows a value that none states.
_SHOWN = (
    ("usual_ttft_ms", "ttft"), ("usual_tpot_ms", "request_tpot"), ("usual_tpot_ms", "itl"),
    ("preemptions_pct", "preemptions"), ("failed_share_pct", "failed_requests"), ("waiting_pct", "waiting"),
    ("highest_kv_cache_usage_pct", "kv_cache_usage_pct"), ("requests_per_s", "e2e"),
)  # fmt: skip
# Fewer requests between two scrapes say less than all since the start do.
_FEW = 20


@dataclass(slots=True)
class Engine:
    """What one scrape says of one engine."""

    name: tuple[str, ...]
    """The labels that tell it from others."""
    label: str = ""
    """Its number, as `Engine 3`; empty where the scrape has no other."""
    started: float | None = None
    """A time stamp that stays as long as the server runs."""
    time_s: float | None = None
    gauges: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The file that shows it."""
        return next(iter(self.lines.values())).source

    @property
    def progress(self) -> dict[str, float]:
        """What only grows as long as the server runs."""
        return {
            **self.counters,
            **{name: one.seen for name, one in self.histograms.items()},
        }

    def take(self, sample: Sample) -> None:
        """Take one of its numbers; of the same told twice, as under a new name and an old, the first."""
        name, line = sample.name, sample.line
        if name in _GAUGES:
            fact = _GAUGES[name]
            share = fact.endswith("_pct")
            self.gauges.setdefault(fact, sample.value * 100 if share else sample.value)
            self.lines.setdefault(fact, line)
        elif name in _COUNTERS:
            self.counters.setdefault(_COUNTERS[name], sample.value)
            self.lines.setdefault(_COUNTERS[name], line)
        elif name == "request_success":
            fact = _REASONS.get(sample.labels.get("finished_reason", ""), "successful_requests")
            self.counters[fact] = self.counters.get(fact, 0.0) + sample.value
            self.lines.setdefault(fact, line)
        elif name.endswith(_CREATED):
            self.started = min(self.started or inf, sample.value)


class _Parts:
    """The numbers of one histogram."""

    def __init__(self) -> None:
        self.count: float | None = None
        self.sum: float | None = None
        self.buckets: dict[float, float] = {}
        self.line: Line | None = None

    def take(self, part: str, sample: Sample) -> None:
        if part == "_sum":
            self.sum, self.line = sample.value, sample.line
        elif part == "_count":
            self.count = sample.value
            self.line = self.line or sample.line
        elif len(self.buckets) < _MAX_BUCKETS:
            try:
                bound = float(sample.labels.get("le", ""))
            except ValueError:
                return
            if bound >= 0:
                self.buckets[bound] = sample.value

    @property
    def whole(self) -> Histogram | None:
        """The histogram; None where the scrape does not hold enough of it."""
        if self.count is None or self.sum is None:
            return None
        ordered = sorted(self.buckets.items())
        is_steady = all(one[1] <= two[1] for one, two in pairwise(ordered))
        return Histogram(self.count, self.sum, tuple(ordered) if is_steady else ())


def read(lines: Sequence[Line]) -> Reading:
    """Read a file of one scrape, or of several one after the other."""
    found, problem = scrapes(lines)
    out: list[Observation] = []
    for scrape in found:
        engines = _engines(scrape)
        out += [observation([one]) for one in engines if one.lines]
        out += _of_the_run(scrape)
    return Reading(tuple(out), problem)


def observation(scraped: Sequence[Engine]) -> Observation:
    """What is to be judged of one engine, of its scrapes since one start, earliest first.

    Of several, what came between the first and the last; of a gauge the least, which held all along.
    """
    now, before = scraped[-1], scraped[0]
    values = _values(now, before if len(scraped) > 1 else None, _lasting(scraped))
    values["scrapes"] = len(scraped)
    is_contended = _number(values, "waiting") >= 1
    values["contended_cache_pct"] = _number(values, "kv_cache_usage_pct") if is_contended else 0.0
    used = [
        one.gauges["kv_cache_usage_pct"] for one in scraped if "kv_cache_usage_pct" in one.gauges
    ]
    if used:
        values["highest_kv_cache_usage_pct"] = max(used)
    lines = dict(now.lines)
    for name, shown in _SHOWN:
        if shown in lines:
            lines.setdefault(name, lines[shown])
    if len(scraped) > 1 and before.lines:
        lines["scrapes"] = before.lines.get("waiting", next(iter(before.lines.values())))
    return Observation("metrics", values, lines, detail=now)


def _number(values: Mapping[str, Value], name: str) -> float:
    return float(values.get(name, 0.0))


def _lasting(scraped: Sequence[Engine]) -> dict[str, float]:
    """The least value of each gauge; a scrape without it says nothing of it, and so none lasted."""
    return {name: min(one.gauges.get(name, 0.0) for one in scraped) for name in scraped[-1].gauges}


def _engines(scrape: Scrape) -> list[Engine]:
    """The engines of a scrape; what is told of a whole server belongs to each of its engines."""
    found: dict[tuple[str, ...], Engine] = {}
    parts: dict[tuple[tuple[str, ...], str], _Parts] = {}
    started: dict[tuple[str, ...], float] = {}
    for sample in scrape.samples:
        place = tuple(sample.labels.get(label, "") for label in _PLACE)
        if sample.name == "process_start_time_seconds":
            started[place] = sample.value
            continue
        family, part = _split(sample.name)
        if not (family or sample.name in _GAUGES or sample.name in _COUNTERS
                or sample.name == "request_success" or sample.name.endswith(_CREATED)):  # fmt: skip
            continue
        name = (*place, *(sample.labels.get(label, "") for label in _ENGINE))
        engine = found.get(name)
        if engine is None:
            if len(found) >= _MAX_ENGINES:
                continue
            engine = found[name] = Engine(name, time_s=scrape.time_s)
        if family:
            key = (name, family)
            if key in parts or len(parts) < _MAX_KINDS:
                parts.setdefault(key, _Parts()).take(part, sample)
        else:
            engine.take(sample)
    for (name, family), one in parts.items():
        _put(found[name], _HISTOGRAMS[family], one)
    several = len({one.name for one in found.values() if one.lines}) > 1
    for engine in found.values():
        engine.started = started.get(engine.name[: len(_PLACE)], engine.started)
        number = engine.name[-1]
        engine.label = f"Engine {number}" if several and number else ""
        if engine.label:
            engine.lines = {
                key: line._replace(process=engine.label) for key, line in engine.lines.items()
            }
    return list(found.values())


def _split(name: str) -> tuple[str, str]:
    """A histogram's name and which part of it a number is; empty for what is none."""
    for part in _PARTS:
        family = name.removesuffix(part)
        if family != name and family in _HISTOGRAMS:
            return family, part
    return "", ""


def _put(engine: Engine, name: str, parts: _Parts) -> None:
    whole = parts.whole
    if whole is None or name in engine.histograms:
        return
    engine.histograms[name] = whole
    if parts.line is not None:
        engine.lines[name] = parts.line


def _values(now: Engine, before: Engine | None, gauges: Mapping[str, float]) -> dict[str, Value]:
    counters, histograms = now.counters, now.histograms
    out: dict[str, Value] = {}
    if before is not None:
        since = {name: value - before.counters.get(name, 0.0) for name, value in counters.items()}
        later = {
            name: one.since(before.histograms.get(name, Histogram()))
            for name, one in histograms.items()
        }
        out.update(_rates(now, before.time_s, since, later))
        ttft = later.get("ttft")
        if ttft is not None and ttft.seen >= _FEW:
            counters = since
            histograms = {name: one for name, one in later.items() if one is not None}
    else:
        out.update(_rates(now, now.started, counters, histograms))
    out.update({name: _rounded(value) for name, value in gauges.items()})
    if out.get("swapped") == 0:
        # A fact that says nothing, and that newer releases have not.
        del out["swapped"]
    out.update(_latencies(histograms, is_speculative=counters.get("accepted_tokens", 0.0) > 0))
    finished = sum(counters.get(name, 0.0) for name in ("successful_requests", *_REASONS.values()))
    begun = histograms["ttft"].seen if "ttft" in histograms else 0.0
    observed = max(begun, finished)
    out["observed_requests"] = observed
    for name in ("successful_requests", *_REASONS.values(), "preemptions"):
        if counters.get(name, 0.0) > 0:
            out[name] = counters[name]
    if counters.get("failed_requests", 0.0) > 0:
        out["failed_share_pct"] = _rounded(counters["failed_requests"] * 100 / finished)
    if counters.get("preemptions", 0.0) > 0 and observed > 0:
        out["preemptions_pct"] = _rounded(counters["preemptions"] * 100 / observed)
    if gauges.get("running", 0.0) > 0 and "waiting" in gauges:
        out["waiting_pct"] = gauges["waiting"] * 100 / gauges["running"]
    if counters.get("prefix_cache_queries", 0.0) > 0:
        hits = counters.get("prefix_cache_hits", 0.0)
        out["prefix_cache_hit_pct"] = _rounded(hits * 100 / counters["prefix_cache_queries"])
    return out


def _rates(
    now: Engine,
    start: float | None,
    since: Mapping[str, float],
    later: Mapping[str, Histogram | None],
) -> dict[str, Value]:
    """What came a second since an earlier scrape or the start, where both times are known."""
    if now.time_s is None or start is None or now.time_s <= start:
        return {}
    seconds = now.time_s - start
    out: dict[str, Value] = {"duration_s": _rounded(seconds)}
    ended = later.get("e2e")
    if ended is not None:
        out["requests_per_s"] = _rounded(ended.seen / seconds)
    for name, rate in (("generation_tokens", "output_tokens_per_s"), ("prompt_tokens", "prompt_tokens_per_s")):  # fmt: skip
        if name in since:
            out[rate] = _rounded(since[name] / seconds)
    return out


def _latencies(histograms: Mapping[str, Histogram], *, is_speculative: bool) -> dict[str, Value]:
    out: dict[str, Value] = {}
    tpot = histograms.get("request_tpot")
    # With guessed tokens a step gives several: the time between steps is not that of a token.
    if (tpot is None or tpot.seen == 0) and not is_speculative:
        tpot = histograms.get("itl")
    named = (("ttft", histograms.get("ttft")), ("tpot", tpot), ("e2e", histograms.get("e2e")), ("queue", histograms.get("queue")))  # fmt: skip
    for name, one in named:
        mean = one.mean if one is not None else None
        if one is None or mean is None:
            continue
        out[f"mean_{name}_ms"] = _rounded(mean * 1000)
        for word, share in _QUANTILES.items():
            value = one.quantile(share)
            if value is not None:
                out[f"{word}_{name}_ms"] = _rounded(value * 1000)
        if name in ("ttft", "tpot"):
            # A few very long ones, as at the start, may make the mean what hardly any request saw.
            high = one.quantile(0.95)
            out[f"usual_{name}_ms"] = (mean if high is None else min(mean, high)) * 1000
    return out


def _rounded(value: float) -> float:
    return round(value, 3)


def _of_the_run(scrape: Scrape) -> list[Observation]:
    """The model where it is named as the server was told it: a name without a slash may be an alias."""
    for sample in scrape.samples:
        name = sample.labels.get("model_name", "")
        if "/" in name:
            return [Observation("run", {"model": name}, {"model": sample.line})]
    return []
