"""What `vllm collect-env` and `collect_env.py` print of the machine and its packages."""

from collections.abc import Sequence

from vllm_triage.artefacts.observations import Observation, Reading, Value
from vllm_triage.expressions import expression
from vllm_triage.lines import Line
from vllm_triage.numbers import whole

_BEGINNINGS = ("Collecting environment information", "PyTorch version: ", "System Info")
_FIELD = expression(
    r"(PyTorch version|Nvidia driver version|vLLM Version) {0,40}: {1,4}(\S{1,80})"
)
_NAMES = {
    "PyTorch version": "torch_version",
    "Nvidia driver version": "driver_version",
    "vLLM Version": "vllm_version",
}
_GPU = expression(r"(?:GPU models and configuration {0,40}: {1,4})?GPU (\d{1,3}): \S")


def fits(head: str) -> bool:
    """Tell what the script prints by its first lines."""
    return (
        head.strip("= \n").startswith(_BEGINNINGS)
        and "PyTorch version" in head
        and ("CUDA used to build PyTorch" in head or "OS " in head)
    )


def read(lines: Sequence[Line]) -> Reading:
    """Read the releases of vLLM, torch and the driver, and how many GPUs there are."""
    values: dict[str, Value] = {}
    shown: dict[str, Line] = {}
    gpus = 0
    for line in lines:
        found = _FIELD.match(line.text)
        if found is not None and found[2][0].isdigit():
            name = _NAMES[found[1]]
            values.setdefault(name, found[2])
            shown.setdefault(name, line)
        elif (gpu := _GPU.match(line.text)) is not None:
            gpus = max(gpus, whole(gpu[1]) + 1)
            shown.setdefault("visible_gpus", line)
    if gpus:
        values["visible_gpus"] = gpus
    return Reading((Observation("run", values, shown),) if values else ())
