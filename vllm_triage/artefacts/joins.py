"""Joins: what artefacts say together, and beside the run that the log shows."""

from collections.abc import Sequence

from vllm_triage import platforms
from vllm_triage.arguments import Value as Argument
from vllm_triage.arguments import value_of
from vllm_triage.artefacts import model_joins
from vllm_triage.artefacts.gpu_joins import beside_load, too_old
from vllm_triage.artefacts.observations import Observation
from vllm_triage.artefacts.scrape_series import series
from vllm_triage.run import Run

_OF_POD = ("pod", "namespace", "owner")


def tell(run: Run, observations: Sequence[Observation]) -> None:
    """Give a run the facts that artefacts state and its log does not."""
    told = [one for one in observations if one.subject == "run" and "pod" not in one.values]
    _tell_pods(run, observations)
    # What was sampled more often says more of the load.
    told.sort(key=lambda one: -float(one.values.get("gpu_samples", 0)))
    arguments: dict[str, Argument] = {}
    for one in told:
        is_first = not arguments
        for name, value in one.values.items():
            if name == "model":
                run.model = run.model or str(value)
            elif name == "vllm_version":
                run.release.package(str(value))
            elif name == "torch_version":
                run.torch_version = run.torch_version or str(value)
            elif name == "visible_gpus" and isinstance(value, float | int):
                run.visible_gpus = run.visible_gpus or int(value)
            elif name.startswith("--"):
                # Of several containers the first is the one that serves.
                if is_first:
                    arguments[name[2:]] = value_of(str(value))
            else:
                run.observed.setdefault(name, value)
    if not run.arguments:
        run.arguments.update(arguments)
    if _has_environments(observations):
        from vllm_triage.artefacts import environment_joins

        environment_joins.tell(run, observations)
    for name, value in model_joins.observed(observations, run).items():
        run.observed.setdefault(name, value)


def _tell_pods(run: Run, observations: Sequence[Observation]) -> None:
    for one in observations:
        if one.subject == "run" and "pod" in one.values:
            run.platform.add(platforms.pod(*(str(one.values[name]) for name in _OF_POD)))


def joined(observations: Sequence[Observation], run: Run) -> list[Observation]:
    """The observations, and what follows from several of them or from one and the run."""
    every = list(model_joins.joined(series(observations), run))
    found = [*beside_load(every, run), *too_old(every, run)]
    if _has_environments(observations):
        from vllm_triage.artefacts import environment_joins

        found += environment_joins.joined(observations, run)
    return found


def unfinished(observations: Sequence[Observation]) -> dict[str, str]:
    """By the files, half a sentence on what was left open as they may be cut off."""
    if not _has_environments(observations):
        return {}
    from vllm_triage.artefacts import environment_nodes

    return environment_nodes.unfinished(environment_nodes.nodes(observations))


def _has_environments(observations: Sequence[Observation]) -> bool:
    return any(one.subject == "environment" for one in observations)
