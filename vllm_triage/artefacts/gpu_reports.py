"""Reports of GPUs: `nvidia-smi -q`, as text and as XML."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_triage.artefacts.gpus import Gpu, Listing
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_MAX_ROW = 2_000
_MAX_DEPTH = 30
_GPU = expression(r"GPU ([\dA-Fa-f:.]{8,20})")
_LEAF = expression(r"<(\w{1,60})>([^<]{0,300})</")
_OPENING = expression(r'<(\w{1,60})(?: id="([\dA-Fa-f:.]{8,20})")?>')
_WORD = expression(r"[^a-z0-9]+")
_NUMBER = expression(r"\d{1,12}(?:\.\d{1,6})?")
_REASONS = ("clocks_throttle_reasons", "clocks_event_reasons")
_SLOW = {
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "hardware power brake",
    "sw_thermal_slowdown": "software thermal slowdown",
}
_NO_ACTION = ("None", "N/A", "")


class _Setting(NamedTuple):
    """A value under the headings that it stands under, all in small letters with underscores."""

    path: tuple[str, ...]
    value: str
    line: Line


def query(lines: Sequence[Line], listing: Listing) -> None:
    """Read the text that `nvidia-smi -q` prints."""
    _take(_of_text(lines), listing)


def xml(lines: Sequence[Line], listing: Listing) -> None:
    """Read what `nvidia-smi -q -x` prints, which has one element a line."""
    _take(_of_xml(lines), listing)


def _word(text: str) -> str:
    return _WORD.sub("_", text.lower()).strip("_")


def _of_text(lines: Sequence[Line]) -> Iterator[_Setting]:
    stack: list[tuple[int, str]] = []
    for line in lines:
        text = line.text[:_MAX_ROW].rstrip()
        depth = len(text) - len(text.lstrip())
        name, sign, value = text.strip().partition(" : ")
        while stack and stack[-1][0] >= depth:
            stack.pop()
        gpu = _GPU.fullmatch(text)
        if gpu is not None:
            yield _Setting(("gpu",), gpu[1], line)
            stack = []
            continue
        if sign:
            yield _Setting((*(one for _, one in stack), _word(name)), value.strip(), line)
        # `Process ID : 12` is a value and has others under it, as `HW Slowdown : Active` does.
        if len(stack) < _MAX_DEPTH:
            stack.append((depth, _word(name)))


def _of_xml(lines: Sequence[Line]) -> Iterator[_Setting]:
    stack: list[str] = []
    for line in lines:
        text = line.text.strip()[:_MAX_ROW]
        leaf = _LEAF.match(text)
        opening = _OPENING.match(text)
        if leaf is not None:
            yield _Setting((*stack, leaf[1]), leaf[2].strip(), line)
        elif text.startswith("</"):
            del stack[-1:]
        elif opening is not None and not text.endswith("/>"):
            if opening[1] == "gpu":
                yield _Setting(("gpu",), opening[2] or "", line)
                stack = []
            elif opening[1] != "nvidia_smi_log" and len(stack) < _MAX_DEPTH:
                stack.append(opening[1])


def _take(settings: Iterator[_Setting], listing: Listing) -> None:
    gpu: Gpu | None = None
    process: dict[str, str] = {}
    ecc = 0.0
    for path, value, line in settings:
        name = path[-1]
        if path == ("gpu",):
            gpu, process, ecc = listing.gpu(str(len(listing.gpus)), line), {}, 0.0
            gpu.put("pci", value, line)
        elif name in ("driver_version", "cuda_version") and gpu is None:
            listing.put(name, value, line)
        elif gpu is None:
            continue
        elif "processes" in path:
            process = _process(process, name, value, line, gpu)
        elif _is_uncorrected(path):
            ecc += float(found[0]) if (found := _NUMBER.fullmatch(value)) else 0
            if ecc:
                gpu.values["ecc_errors"] = ecc
                gpu.lines.setdefault("ecc_errors", line)
        else:
            _setting(path, value, line, gpu)


def _is_uncorrected(path: tuple[str, ...]) -> bool:
    """Whether it counts memory errors since the driver was loaded, that could not be corrected."""
    if "volatile" not in path:
        return False
    if "double_bit" in path:
        return path[-1] == "total"
    return "uncorrectable" in path[-1]


def _setting(path: tuple[str, ...], value: str, line: Line, gpu: Gpu) -> None:
    name, above = path[-1], path[-2] if len(path) > 1 else ""
    amount = float(found[0]) if (found := _NUMBER.match(value)) else None
    if name == "product_name":
        gpu.put("gpu_name", value, line)
    elif above == "fb_memory_usage" and name in ("total", "used"):
        gpu.memory(amount if name == "used" else None, amount if name == "total" else None, line)
    elif above == "utilization" and name in ("gpu", "gpu_util"):
        gpu.sample(amount, line)
    elif above == "gpu_utilization_samples":
        _samples(name, amount, line, gpu)
    elif any(one in _REASONS for one in path) and value == "Active":
        reason = name.removeprefix("clocks_throttle_reason_").removeprefix("clocks_event_reason_")
        if reason in _SLOW:
            gpu.put("gpu_slowdown", _SLOW[reason], line)
    elif value == "Yes":
        _pending(name, above, line, gpu)
    elif name == "gpu_recovery_action" and value not in _NO_ACTION:
        gpu.put("recovery_action", value, line)


def _samples(name: str, amount: float | None, line: Line, gpu: Gpu) -> None:
    """The mean of some seconds says more than the moment."""
    if name == "number_of_samples" and amount:
        gpu.sampled = int(amount)
    elif name == "avg" and amount is not None:
        gpu.utilization.clear()
        gpu.weights.clear()
        gpu.lines["gpu_utilization_pct"] = line
        gpu.sample(amount, line, weight=gpu.sampled or 1)


def _pending(name: str, above: str, line: Line, gpu: Gpu) -> None:
    if above.startswith("remapped_row"):
        if name in ("remapping_failure_occurred", "remapped_row_failure"):
            gpu.values["remapping"] = "failed"
            gpu.lines["remapping"] = line
        elif name in ("pending", "remapped_row_pending"):
            gpu.put("remapping", "pending", line)
    elif name in ("pending_page_blacklist", "pending_blacklist", "pending_retirement"):
        gpu.put("retirement", "pending", line)
    elif name == "reset_required":
        gpu.put("recovery_action", "Reset", line)


def _process(found: dict[str, str], name: str, value: str, line: Line, gpu: Gpu) -> dict[str, str]:
    """Take a line about a program; it is complete with its memory."""
    key = {"process_id": "pid", "pid": "pid", "type": "type", "name": "name", "process_name": "name"}.get(name)  # fmt: skip
    if key is not None:
        return {key: value} if key == "pid" else {**found, key: value}
    if name in ("used_gpu_memory", "used_memory") and found.get("pid", "").isdecimal() and "C" in found.get("type", ""):  # fmt: skip
        memory = float(one[0]) if (one := _NUMBER.match(value)) else None
        gpu.process(int(found["pid"][:12]), found.get("name", ""), memory, line)
    return found
