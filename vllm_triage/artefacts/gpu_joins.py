"""What listings of GPUs say beside a benchmark, and beside the run that the log shows."""

from collections.abc import Iterator, Sequence

from vllm_triage.artefacts.observations import Observation, Value
from vllm_triage.drivers import needed
from vllm_triage.lines import Line
from vllm_triage.run import Run
from vllm_triage.versions import parse

_LOAD = ("gpu_utilization_pct", "gpu_samples", "gpu_memory_used_pct", "gpu_slowdown")


def beside_load(observations: Sequence[Observation], run: Run) -> Iterator[Observation]:
    """The same, the benchmarks with the load of the GPUs."""
    load: dict[str, Value] = {name: value for name, value in run.observed.items() if name in _LOAD}
    lines: dict[str, Line] = {}
    for one in observations:
        if one.subject == "run" and one.values.get("gpu_samples") == load.get("gpu_samples"):
            lines |= {name: line for name, line in one.lines.items() if name in load}
    for one in observations:
        if one.subject != "benchmark":
            yield one
            continue
        # The benchmark's own lines come first.
        more = {name: line for name, line in lines.items() if name not in one.lines}
        yield one.with_values(load)._replace(lines={**one.lines, **more})


def too_old(observations: Sequence[Observation], run: Run) -> Iterator[Observation]:
    """A driver that the CUDA release of the run does not work with, unless the run used a GPU."""
    need = needed(run)
    if (
        need is None
        or not need.is_printed
        or run.was_serving
        or run.memory.weights_bytes is not None
    ):
        return
    least = parse(need.least)
    for one in observations:
        driver = one.values.get("driver_version")
        if one.subject != "run" or not isinstance(driver, str):
            continue
        there = parse(driver)
        if least is not None and there is not None and there < least:
            values: dict[str, Value] = {
                "driver": "too old",
                "driver_version": driver,
                "required_version": need.least,
                "cuda_error": f"driver {driver} is too old for CUDA {need.cuda}",
            }
            line = one.lines.get("driver_version") or next(iter(one.lines.values()))
            yield Observation("gpu", values, {"driver": line})
            return
