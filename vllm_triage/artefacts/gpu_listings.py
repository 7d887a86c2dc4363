"""Listings of GPUs: the table of `nvidia-smi`, its lists and what it samples."""

from collections.abc import Callable, Mapping, Sequence

from vllm_triage.artefacts import gpu_reports, gpu_samples
from vllm_triage.artefacts.gpus import Gpu, Listing
from vllm_triage.artefacts.heads import Dialect, dialect
from vllm_triage.artefacts.observations import Reading
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_HEAD_LINES = 200
_MAX_ROW = 2_000
_ERR = "ERR!"
_BANNER = expression(
    r"Driver Version: {0,9}([\w.]{1,20})(?: {1,20}CUDA Version: {0,9}([\w./]{1,12}))?"
)
_PCI = expression(r"[\dA-Fa-f]{4,8}:[\dA-Fa-f]{2}:[\dA-Fa-f]{2}\.[\dA-Fa-f]")
_MEMORY = expression(r"(\d{1,9})MiB ?/ {0,9}(\d{1,9})MiB")
_UTILIZATION = expression(r"(\d{1,3})%")
_UNNAMED = (
    "its numbers have neither names nor units and were not judged; if nvidia-smi printed them, "
    "give what it prints with --format=csv alone"
)
_LISTED = expression(r"GPU (\d{1,3}): ([^\n(]{1,80}) \(UUID: ([\w-]{4,60})\)")


def read(lines: Sequence[Line]) -> Reading:
    """Read what one call of `nvidia-smi` printed, or several of the same kind one after the other."""
    head = "\n".join(line.text for line in lines[:_HEAD_LINES]).lstrip("\ufeff \t\r\n")
    found = dialect(head)
    listing = Listing()
    if found is not None:
        said = [line for line in lines if line.text.strip()]
        _READERS[found](said, listing)
    observations = tuple(listing.observations())
    if found == "bare":
        return Reading(observations, _UNNAMED)
    return Reading(observations, None if observations else "no GPU in it could be read")


def _table(lines: Sequence[Line], listing: Listing) -> None:
    gpu: Gpu | None = None
    section = "gpus"
    for line in lines:
        text = line.text.rstrip()
        if not text.startswith("|") or len(text) > _MAX_ROW:
            continue
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if "NVIDIA-SMI " in text:
            section, gpu = "gpus", None
            found = _BANNER.search(text)
            if found is not None:
                listing.put("driver_version", found[1], line)
                listing.put("cuda_version", found[2] or "", line)
        elif cells[0].startswith("Processes:"):
            section = "processes"
        elif cells[0].startswith("MIG devices:"):
            section = "mig"
        elif section == "processes":
            _process(cells[0], line, listing)
        elif section == "gpus":
            gpu = _gpu_row(cells, line, listing, gpu)


def _gpu_row(cells: Sequence[str], line: Line, listing: Listing, gpu: Gpu | None) -> Gpu | None:
    """Take a row of the table: a GPU has two, with its name in the first and its numbers in the second."""
    if len(cells) < 3:
        return gpu
    pci = _PCI.match(cells[1])
    words = cells[0].split()
    if pci is not None and words and words[0].isdecimal():
        gpu = listing.gpu(words[0], line)
        gpu.put("gpu_name", " ".join(words[1:-1]), line)
        gpu.put("pci", pci[0], line)
        if cells[2].isdecimal():
            gpu.put("ecc_errors", float(cells[2][:12]), line)
        return gpu
    is_second = "MiB" in cells[1] or "Not Supported" in cells[1] or _ERR in line.text
    if gpu is None or not is_second:
        return gpu
    memory, busy = _MEMORY.search(cells[1]), _UTILIZATION.match(cells[2])
    if memory is not None:
        gpu.memory(float(memory[1]), float(memory[2]), line)
    gpu.sample(float(busy[1]) if busy else None, line)
    if line.text.count(_ERR) > 1:
        gpu.put("unreadable", "yes", line)
    return None


def _process(cell: str, line: Line, listing: Listing) -> None:
    """A row of the table's programs: GPU, from 450 on the instance's ids, pid, type, name, memory."""
    words = cell.split()
    if len(words) < 5 or not words[0].isdecimal() or words[0] not in listing.gpus:
        return
    at = next((at for at, word in enumerate(words[1:5], 1) if word in ("C", "C+G", "M+C")), None)
    if at is None or not words[at - 1].isdecimal():
        return
    memory = words[-1].removesuffix("MiB")
    used = float(memory[:12]) if memory.isdecimal() else None
    name = " ".join(words[at + 1 : -1])
    listing.gpu(words[0], line).process(int(words[at - 1][:12]), name, used, line)


def _list(lines: Sequence[Line], listing: Listing) -> None:
    for line in lines:
        found = _LISTED.match(line.text[:_MAX_ROW])
        if found is not None:
            listing.gpu(found[1], line).put("gpu_name", found[2], line)


_READERS: Mapping[Dialect, Callable[[Sequence[Line], Listing], None]] = {
    "table": _table,
    "list": _list,
    "query": gpu_reports.query,
    "xml": gpu_reports.xml,
    "csv": gpu_samples.csv,
    "values": gpu_samples.values,
    "bare": gpu_samples.bare,
    "samples": gpu_samples.samples,
}
