"""Conditions: what a pattern asks of an event and its run besides its words."""

from functools import lru_cache

from vllm_triage.events import Event
from vllm_triage.globs import fits
from vllm_triage.kinds import Level
from vllm_triage.lines import Origin
from vllm_triage.rules import Pattern
from vllm_triage.run import Run


def accepts(pattern: Pattern, level: Level, origin: Origin) -> bool:
    """Tell whether a pattern looks at lines of this level and sort at all."""
    return pattern.level.rank <= level.rank and looks_at(pattern, origin)


def looks_at(pattern: Pattern, origin: Origin) -> bool:
    """Tell whether a pattern looks at lines of this sort, of some level."""
    wanted = pattern.origin
    return pattern.artefact is None and (
        wanted in ("any", origin) or (wanted == "kernel" and origin is Origin.LOG)
    )


def raised_so(pattern: Pattern, event: Event) -> bool:
    """Tell whether an event's exception and frames are those that a pattern asks for."""
    if pattern.exception:
        name = (event.exception or "").rpartition(".")[2]
        if name not in pattern.exception:
            return False
    if pattern.raised_in and not (
        event.frames and _frame_matches(pattern.raised_in, *event.frames[-1][::2])
    ):
        return False
    return not pattern.frames or any(
        _frame_matches(pattern.frames, file, function) for file, _, function in event.frames
    )


@lru_cache(maxsize=4096)
def _frame_matches(globs: tuple[str, ...], file: str, function: str) -> bool:
    for glob in globs:
        path, colon, name = glob.partition(":")
        if fits(file, path) and (not colon or fits(function, name)):
            return True
    return False


def satisfies(needs: tuple[str, ...], run: Run, quantization: str | None) -> bool:
    """Tell whether a run shows all the facts that a pattern or variant needs."""
    for name in needs:
        if name == "quantization":
            if quantization is None:
                return False
        elif not run.arguments.get(name.replace("-", "_")):
            return False
    return True


def in_bounds(pattern: Pattern, fields: dict[str, str | float | None]) -> bool:
    """Tell whether the captured numbers are within a pattern's bounds."""
    bounds = pattern.bounds if pattern.at_least or pattern.at_most else {}
    for name, (least, greatest) in bounds.items():
        try:
            number = float(str(fields.get(name)).replace(",", ""))
        except ValueError:
            return False
        if not least <= number <= greatest:
            return False
    return all(str(fields.get(name)) in allowed for name, allowed in pattern.equals.items())


def in_words(pattern: Pattern) -> str:
    """What a pattern asks of an artefact's values, for people."""
    bounds = pattern.bounds
    asked = [
        *(f"{name} >= {bounds[name][0]:g}" for name in pattern.at_least),
        *(f"{name} <= {bounds[name][1]:g}" for name in pattern.at_most),
        *(f"{name} is {' or '.join(allowed)}" for name, allowed in pattern.equals.items()),
    ]
    return f"{pattern.artefact}: {', '.join(asked)}"
