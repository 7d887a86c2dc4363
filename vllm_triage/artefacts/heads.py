"""Heads: what the beginning of a file tells of its format.

Every line that is seen must be one that the format has: where another stands among them, it is a log.
"""

from typing import Literal

from vllm_triage.expressions import expression

Dialect = Literal["query", "xml", "list", "samples", "table", "csv", "values", "bare"]
"""The outputs of `nvidia-smi`: `-q`, `-q -x`, `-L`, `dmon` and `pmon`, without options, and
`--query-gpu` or `--query-compute-apps` with and without the names of the columns, and without the units too."""

TITLE = " Serving Benchmark Result "
QUERY = "==============NVSMI LOG=============="

_SEEN = 60_000
_MAX_ROW = 2_000
_RESULT_KEYS = (
    ('"request_throughput":', '"duration":'),
    ('"requests_per_second":', '"elapsed_time":'),
    ('"avg_latency":', '"percentiles":'),
)
_TABLE_BEGINS = ("Throughput: ", "Avg latency: ", "Total time: ")
_RESULT = expression(
    r"(?:[A-Z][\w .()/,%-]{2,60}|\d\d?% percentile latency):\s{1,60}(?:[\d.,-]{1,30}|inf|nan)(?: (?:s|seconds|requests/s.{0,80}))?"
)
_CLOCK = expression(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_PROMPT = expression(r"[^|\n]{0,80}[$#>] ?nvidia-smi")
_SETTING = expression(r"(?:GPU [\dA-Fa-f:.]{8,20}|[A-Z][\w /().,&-]{0,60}):?")
_NAME = expression(r"[a-z_]+(?:\.[a-z_0-9]+)*(?: \[[\w/%]{1,8}\])?")
_GPU_NAMES = ("utilization.", "memory.", "used_memory", "used_gpu_memory", "driver_version", "pci.bus_id",
              "temperature.gpu", "power.draw", "ecc.errors.", "clocks_")  # fmt: skip
_AMOUNT = expression(r"[\d.]{1,12} (?:%|MiB)")
_BARE = expression(
    r"-?\d{1,12}(?:\.\d{1,6})?|\[?(?:N/A|Not Supported)\]?|\d{4}/\d\d/\d\d [\d:.]{8,15}|(?:NVIDIA|Tesla|Quadro|GRID) [\w. -]{1,60}"
    r"|(?:GPU|MIG)-[\da-f-]{8,60}|[\dA-Fa-f]{4,8}:[\dA-Fa-f]{2}:[\dA-Fa-f]{2}\.[\dA-Fa-f]"
)
_SERIES = expression(
    r"[A-Za-z_:][\w:]{1,200}+(?:\{[^\n]{0,1800}\})? [-+]?[\d.][\w.+-]{0,40}(?: \d{1,20})?$"
)
_OF_QUERY = expression(
    r"(?:GPU [\dA-Fa-f:.]{8,20}|(?:Timestamp|Driver Version|CUDA Version|Attached GPUs) {1,60}: .{0,80})$"
)
_LISTED = expression(r"(?:GPU \d{1,3}: |\s{1,8}MIG )[^\n]{1,80}\(UUID: [\w/-]{4,80}\)")


def is_benchmark(head: str) -> bool:
    """Tell whether a file is a result of `vllm bench`, as it is printed or saved."""
    if head.startswith(("{", "[")):
        return any(all(key in head for key in keys) for keys in _RESULT_KEYS)
    if TITLE not in head[:120] and not head.startswith(_TABLE_BEGINS):
        return False
    return all(_is_result(row) for row in _rows(head))


def is_nvidia_smi(head: str) -> bool:
    """Tell whether a file is what `nvidia-smi` prints: its table, lists, queries or samples."""
    return dialect(head) is not None


def goes_on(row: str) -> bool:
    """Whether a line may belong to a scrape, a table or a report of GPUs that stands among the lines of a log."""
    if not row.strip() or row.startswith("#"):
        return True
    return len(row) < _MAX_ROW and (
        _SERIES.match(row) is not None
        or row.startswith(("|", "+"))
        or (row[0] == " " and _is_setting(row))
        or _OF_QUERY.match(row) is not None
    )


def dialect(head: str) -> Dialect | None:
    """Which of the outputs of `nvidia-smi` a file is that begins so: all lines that are seen must fit."""
    first = head.partition("\n")[0].rstrip()
    if head.startswith(QUERY):
        return "query" if all(map(_is_setting, _rows(head))) else None
    if head.startswith(("<?xml", "<!DOCTYPE", "<nvidia_smi_log")):
        return "xml" if "<nvidia_smi_log" in head[:400] else None
    if "| NVIDIA-SMI " in head[:1000]:
        return "table" if all(map(_is_drawn, _rows(head))) else None
    if len(first) > _MAX_ROW:
        return None
    if head.startswith("GPU "):
        return "list" if all(map(_LISTED.fullmatch, _rows(head))) else None
    if head.startswith("#"):
        is_sampled = "gpu" in first.lstrip("# ").split()[:3]
        return "samples" if is_sampled and all(map(_is_sample, _rows(head))) else None
    names = [one.strip() for one in first.split(",")]
    if any(one.startswith(_GPU_NAMES) for one in names) and all(map(_NAME.fullmatch, names)):
        return "csv" if _have_fields(head, len(names)) else None
    if len(names) > 1 and any(map(_AMOUNT.fullmatch, names)):
        has_amount = (any(map(_AMOUNT.fullmatch, row.split(", "))) for row in _rows(head))
        return "values" if _have_fields(head, len(names)) and all(has_amount) else None
    is_bare = (
        len(names) > 1 and all(map(_BARE.fullmatch, names)) and _have_fields(head, len(names))
    )
    return "bare" if is_bare and all(map(_is_bare, _rows(head))) else None


def _rows(head: str) -> list[str]:
    """The lines that are seen and not blank; one that may be cut is none."""
    rows = head.splitlines()
    return [row.rstrip() for row in (rows[:-1] if len(head) > _SEEN else rows) if row.strip()]


def _is_result(row: str) -> bool:
    text = row.strip()
    is_rule = text.startswith(("---", "===")) and text.endswith(("---", "===")) and len(text) < 80
    return is_rule or (len(text) < _MAX_ROW and _RESULT.fullmatch(text) is not None)


def _is_drawn(row: str) -> bool:
    if row.startswith(("|", "+")):
        return True
    is_other = _CLOCK.fullmatch(row) or _PROMPT.match(row[:100])
    return is_other is not None or (row.startswith("Every ") and "nvidia-smi" in row[:60])


def _is_setting(row: str) -> bool:
    text = row.strip()
    key, sign, value = text.partition(": ")
    name = key.rstrip()
    if sign and (not key.endswith(" ") or len(value) > 200):
        return False
    return row.startswith(QUERY) or (len(name) < 80 and (_SETTING.fullmatch(name) is not None))


def _is_sample(row: str) -> bool:
    if row.startswith("#"):
        return len(row) < _MAX_ROW
    words = row.split()
    while words and (words[0].count(":") == 2 or len(words[0]) == 8) and words[0][:2].isdecimal():
        words = words[1:]
    return len(words) > 2 and words[0].isdecimal() and words[2][:1] in "-0123456789CGM"


def _is_bare(row: str) -> bool:
    return all(_BARE.fullmatch(one) for one in row.split(", "))


def _have_fields(head: str, count: int) -> bool:
    return all(
        len(row) <= _MAX_ROW and row.count(",") == count - 1 and '"' not in row
        for row in _rows(head)
    )
