"""Series: several scrapes of one server, which together tell rates and what lasted."""

from collections.abc import Sequence
from itertools import pairwise

from vllm_triage.artefacts.observations import Observation
from vllm_triage.artefacts.prometheus import Engine, observation


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
    for scraped in engines.values():
        out += map(observation, _runs(scraped))
    return out


def _runs(scraped: Sequence[Engine]) -> list[list[Engine]]:
    """The scrapes of each start of a server, earliest first."""
    starts: dict[float | None, list[Engine]] = {}
    for engine in scraped:
        starts.setdefault(engine.started, []).append(engine)
    found: list[list[Engine]] = []
    for engines in starts.values():
        engines.sort(key=lambda one: (one.time_s or 0.0, sum(one.progress.values())))
        run = engines[:1]
        for before, now in pairwise(engines):
            if not _follows(now, before):
                found.append(run)
                run = []
            run.append(now)
        found.append(run)
    return found


def _follows(now: Engine, before: Engine) -> bool:
    """Whether no counter fell."""
    after = now.progress
    return all(after.get(name, value) >= value for name, value in before.progress.items())
