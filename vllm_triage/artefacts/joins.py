"""Joins: what artefacts say together, and beside the run that the log shows."""

from collections.abc import Sequence

from vllm_triage.artefacts import environment_joins
from vllm_triage.artefacts.observations import Observation, Value
from vllm_triage.run import Run


def tell(run: Run, observations: Sequence[Observation]) -> None:
    """Give a run the facts that artefacts state and its log does not."""
    arguments: dict[str, Value] = {}
    for one in observations:
        if one.subject != "run":
            continue
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
                arguments.setdefault(name[2:], value)
            else:
                run.observed.setdefault(name, value)
    if not run.arguments:
        run.arguments.update(arguments)
    environment_joins.tell(run, observations)


def joined(observations: Sequence[Observation], run: Run) -> list[Observation]:
    """The observations, and what follows from several of them or from one and the run."""
    return [*observations, *environment_joins.joined(observations, run)]
