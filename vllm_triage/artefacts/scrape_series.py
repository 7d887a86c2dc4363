"""Series: several scrapes of one server, which together tell rates and what lasted."""

from collections.abc import Sequence

from vllm_triage.artefacts.observations import Observation
from vllm_triage.artefacts.prometheus import Engine, observation
from vllm_triage.templates import duration

_MAX_ROWS = 64
_COLUMNS = {
    "engine": "",
    "running": "running",
    "waiting": "waiting",
    "KV cache (%)": "kv_cache_usage_pct",
    "mean TTFT": "mean_ttft_ms",
    "mean TPOT": "mean_tpot_ms",
    "preemptions": "preemptions",
}


def series(observations: Sequence[Observation]) -> list[Observation]:
    """The observations, those of one engine at several times as one.

    A server that was started again between two scrapes is told by its counters and its start:
    what was scraped before stays by itself.
    """
    out: list[Observation] = []
    engines: dict[tuple[str, ...], list[Engine]] = {}
    for one in observations:
        if isinstance(one.detail, Engine):
            engines.setdefault(one.detail.name, []).append(one.detail)
        else:
            out.append(one)
    told = [observation(run) for scraped in engines.values() for run in _runs(scraped)]
    return out + (_beside_each_other(told) if len(told) > 1 else told)


def _beside_each_other(told: Sequence[Observation]) -> list[Observation]:
    """The same with a table of all engines, so that a slow one stands out."""
    rows = [tuple(_COLUMNS)]
    for one in told[:_MAX_ROWS]:
        name = one.detail.label or one.detail.source if isinstance(one.detail, Engine) else ""
        rows.append((name, *(_shown(one, value) for value in _COLUMNS.values() if value)))
    return [one._replace(table=tuple(rows)) for one in told]


def _shown(one: Observation, name: str) -> str:
    value = one.values.get(name)
    if name.endswith("_ms") and isinstance(value, int | float):
        return duration(value)
    return "" if value is None else f"{value:.0f}" if isinstance(value, float) else str(value)


def _runs(scraped: Sequence[Engine]) -> list[list[Engine]]:
    """The scrapes of each start of a server, earliest first.

    In a file they are in their order; of several files the counters tell it, where no time does.
    """
    starts: dict[float | None, list[list[Engine]]] = {}
    moments: set[tuple[object, ...]] = set()
    for engine in scraped:
        # A file that was copied tells nothing that lasted.
        moment = (engine.started, *engine.gauges.items(), *engine.progress.items())
        if moment in moments:
            continue
        moments.add(moment)
        parts = starts.setdefault(engine.started, [])
        if parts and parts[-1][-1].source == engine.source and _follows(engine, parts[-1][-1]):
            parts[-1].append(engine)
        else:
            parts.append([engine])
    found: list[list[Engine]] = []
    for parts in starts.values():
        parts.sort(key=lambda part: (part[0].time_s or 0.0, sum(part[0].progress.values())))
        run = parts[0]
        for part in parts[1:]:
            if part[0].source != run[-1].source and _follows(part[0], run[-1]):
                run = [*run, *part]
            else:
                found.append(run)
                run = part
        found.append(run)
    return found


def _follows(now: Engine, before: Engine) -> bool:
    """Whether no counter fell, and none is missing, as in a scrape that was cut off."""
    after = now.progress
    return all(after.get(name, -1.0) >= value for name, value in before.progress.items())
