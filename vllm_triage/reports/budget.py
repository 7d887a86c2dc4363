"""The rows of a memory budget, for every format."""

from vllm_triage.model import MemoryBudget

MAX_ROWS = 6
_GIB = 1024**3
# In the order shown; the number says which are kept when there are more than fit.
_ROWS = (
    ("total", "total_bytes", 1),
    ("vLLM's share", "desired_bytes", 6),
    ("weights", "weights_bytes", 2),
    ("activations", "activations_bytes", 8),
    ("non-torch", "non_torch_bytes", 12),
    ("CUDA graphs", "cuda_graphs_bytes", 7),
    ("KV cache", "kv_cache_bytes", 3),
    ("KV cache needed", "kv_cache_needed_bytes", 4),
    ("this process", "process_bytes", 9),
    ("other processes", "other_processes_bytes", 5),
    ("PyTorch", "allocated_bytes", 13),
    ("reserved, unused", "reserved_bytes", 3),
    ("asked", "requested_bytes", 10),
    ("free", "free_bytes", 11),
)


def gib(size: int) -> str:
    """A size in GiB with two decimals."""
    return f"{size / _GIB:.2f} GiB"


def heading(budget: MemoryBudget) -> tuple[str, str]:
    """Whose memory it is, and what does not fit: `asked 2.00 GiB, free 0.14 GiB`, else nothing."""
    gpu = "one GPU" if budget.gpu_index is None else f"GPU {budget.gpu_index}"
    whose = f"Memory of {gpu}" + (f" ({budget.process})" if budget.process else "")
    pair = _pair(budget)
    if pair is None:
        left = budget.kv_cache_bytes
        is_short = left is not None and left < 0
        return whose, f"{gib(-left)} too little" if is_short and left is not None else ""
    wanted, had = getattr(budget, pair[0]), getattr(budget, pair[1])
    return whose, pair[2].format(gib(wanted), gib(had))


def rows(budget: MemoryBudget) -> list[tuple[str, str, str]]:
    """Label, size and share of the total, of what is known and not in the heading; at most six."""
    said = list((_pair(budget) or ())[:2])
    if (budget.reserved_bytes or 0) < max(1, budget.requested_bytes or 0):
        # Even unbroken it would not have held what was asked.
        said.append("reserved_bytes")
    if budget.process_bytes is not None:
        said.append("allocated_bytes")
    known = [
        (rank, label, size)
        for label, name, rank in _ROWS
        if name not in said and (size := getattr(budget, name)) is not None
    ]
    kept = sorted(known)[:MAX_ROWS]
    total = budget.total_bytes
    return [
        (label, gib(size), f"{size / total:.0%}" if total and size != total else "")
        for rank, label, size in known
        if (rank, label, size) in kept
    ]


def _pair(budget: MemoryBudget) -> tuple[str, str, str] | None:
    """What was wanted, what there was, and the words for it."""
    for wanted, had, words in (
        ("requested_bytes", "free_bytes", "asked {}, free {}"),
        (
            "kv_cache_needed_bytes",
            "kv_cache_bytes",
            "KV cache needs {}, has {}",
        ),
        ("desired_bytes", "free_bytes", "vLLM wants {}, free {}"),
    ):
        if getattr(budget, wanted) is not None and getattr(budget, had) is not None:
            return wanted, had, words
    return None
