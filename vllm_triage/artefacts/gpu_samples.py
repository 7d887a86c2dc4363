"""Samples of GPUs: `nvidia-smi --query-gpu`, `--query-compute-apps`, `dmon` and `pmon`."""

from collections.abc import Mapping, Sequence

from vllm_triage.artefacts.gpus import Gpu, Listing
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_ANY = "any"
"""The index of rows that do not say of which GPU they are."""
_AMOUNT = expression(r"(-?\d{1,12}(?:\.\d{1,6})?)(?: ?(%|MiB|MB|W|C|MHz))?")
_SLOW = {
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "hardware power brake",
    "sw_thermal_slowdown": "software thermal slowdown",
}
_MAX_FIELD = 300
_MAKES = ("NVIDIA ", "Tesla ", "Quadro ", "GRID ")
_LEAST_ROWS = 2


class _Moments:
    """Shares of rows that do not say of which GPU they are: those of one second are one sample."""

    def __init__(self) -> None:
        self._shares: dict[str, list[float]] = {}
        self._line: Line | None = None

    def add(self, time: str, share: float | None, line: Line) -> None:
        if share is not None:
            self._shares.setdefault(time.partition(".")[0], []).append(share)
            self._line = self._line or line

    def give(self, gpu: Gpu) -> None:
        for shares in self._shares.values():
            if self._line is not None:
                gpu.sample(sum(shares) / len(shares), self._line)


def csv(lines: Sequence[Line], listing: Listing) -> None:
    """Read rows under the names of their columns."""
    names = [one.split(" [")[0].strip() for one in lines[0].text.split(",")]
    moments = _Moments()
    for line in lines[1:]:
        fields = [one.strip()[:_MAX_FIELD] for one in line.text.split(",")]
        if len(fields) != len(names) or fields[0].split(" [")[0] == names[0]:
            continue
        row = dict(zip(names, fields, strict=True))
        _row(row, line, listing, moments)
    if _ANY in listing.gpus:
        moments.give(listing.gpus[_ANY])


def _row(row: Mapping[str, str], line: Line, listing: Listing, moments: _Moments) -> None:
    address = next((row[name] for name in ("index", "pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "serial") if name in row), _ANY)  # fmt: skip
    gpu = listing.gpu(address, line)
    name = row.get("name") or row.get("gpu_name")
    if name:
        gpu.put("gpu_name", name, line)
    for column in ("pci.bus_id", "gpu_bus_id"):
        if row.get(column):
            gpu.put("pci", row[column], line)
    listing.put("driver_version", row.get("driver_version", ""), line)
    used, free, total = (
        _amount(row.get(f"memory.{part}", "")) for part in ("used", "free", "total")
    )
    if total is None and used is not None and free is not None:
        total = used + free
    if used is None and total is not None and free is not None:
        used = total - free
    gpu.memory(used, total, line)
    share = _amount(row.get("utilization.gpu", ""))
    if address == _ANY:
        moments.add(row.get("timestamp", ""), share, line)
    else:
        gpu.sample(share, line)
    _faults(row, gpu, line)
    pid = row.get("pid", "")
    if pid.isdecimal():
        memory = _amount(row.get("used_gpu_memory") or row.get("used_memory") or "")
        gpu.process(int(pid[:12]), row.get("process_name") or row.get("name") or "", memory, line)


def _faults(row: Mapping[str, str], gpu: Gpu, line: Line) -> None:
    for column, value in row.items():
        word = column.rpartition(".")[2]
        if column.startswith("ecc.errors.uncorrected.volatile") and word in ("total", "volatile"):
            count = _amount(value)
            if count is not None and count >= 0:
                gpu.put("ecc_errors", count, line)
        elif column.startswith("clocks_") and value == "Active" and word in _SLOW:
            gpu.put("gpu_slowdown", _SLOW[word], line)
        elif column == "retired_pages.pending" and value == "Yes":
            gpu.put("retirement", "pending", line)
        elif column == "remapped_rows.pending" and value in ("Yes", "1"):
            gpu.put("remapping", "pending", line)
        elif column == "remapped_rows.failure" and value in ("Yes", "1"):
            gpu.put("remapping", "failed", line)
        elif column == "gpu_recovery_action":
            gpu.put("recovery_action", value, line)


def values(lines: Sequence[Line], listing: Listing) -> None:
    """Read rows without the names of their columns: what their units tell."""
    rows = [[one.strip()[:_MAX_FIELD] for one in line.text.split(",")] for line in lines]
    units = [found[2] if (found := _AMOUNT.fullmatch(one)) else "" for one in rows[0]]
    shares = [at for at, unit in enumerate(units) if unit == "%"]
    sizes = [at for at, unit in enumerate(units) if unit == "MiB"]
    totals = {row[sizes[-1]] for row in rows if len(row) == len(units)} if sizes else set()
    has_total = len(sizes) == 2 and len(totals) == 1 and len(rows) >= _LEAST_ROWS
    moments = _Moments()
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(units):
            continue
        has_index = row[0].isdecimal() and len(row[0]) <= 2
        gpu = listing.gpu(row[0] if has_index else _ANY, line)
        name = next((one for one in row if one.startswith(_MAKES)), "")
        gpu.put("gpu_name", name, line)
        if has_total:
            gpu.memory(_amount(row[sizes[0]]), _amount(row[sizes[1]]), line)
        share = _amount(row[shares[0]]) if len(shares) == 1 else None
        if has_index:
            gpu.sample(share, line)
        else:
            time = row[0] if row[0].count(":") == 2 else ""
            moments.add(time, share, line)
    if _ANY in listing.gpus:
        moments.give(listing.gpus[_ANY])


def bare(lines: Sequence[Line], listing: Listing) -> None:
    """Read rows of numbers alone: what they count is not said, only the GPU's name is taken."""
    for line in lines:
        fields = [one.strip()[:_MAX_FIELD] for one in line.text.split(",")]
        name = next((one for one in fields if one.startswith(_MAKES)), "")
        if name:
            listing.gpu(_ANY, line).put("gpu_name", name, line)


def samples(lines: Sequence[Line], listing: Listing) -> None:
    """Read what `dmon` or `pmon` print: columns under their names, a GPU or a program a line."""
    names: list[str] = []
    for line in lines:
        words = line.text.split()
        if words[0].startswith("#"):
            heading = line.text.lstrip("# ").split()
            if "gpu" in heading[:3]:
                names = heading
            continue
        row = dict(zip(names, words, strict=False))
        index = row.get("gpu", "")
        if not index.isdecimal() or len(index) > 3:
            continue
        gpu = listing.gpu(index, line)
        if "pid" in row:
            if row["pid"].isdecimal() and "C" in row.get("type", ""):
                name = " ".join(words[len(names) - 1 :])
                gpu.process(int(row["pid"][:12]), name, _amount(row.get("fb", "")), line)
            continue
        gpu.sample(_amount(row.get("sm", "")), line)
        gpu.memory(_amount(row.get("fb", "")), None, line)
        count = _amount(row.get("dbecc", ""))
        if count is not None:
            gpu.put("ecc_errors", count, line)


def _amount(text: str) -> float | None:
    """A number, with its unit or without; None for `N/A`, `-` and `[Not Supported]`."""
    found = _AMOUNT.fullmatch(text)
    return float(found[1]) if found else None
