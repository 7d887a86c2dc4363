"""Read a vLLM crash log, name its root cause, show the proof and give the fix steps.

from vllm_triage import triage

    report = triage("pod.log")
    if report.root is not None:
        print(report.root.title, report.root.evidence[0].text)
"""

import typing

if typing.TYPE_CHECKING:
    from vllm_triage.contract import (
        AnyFacts,
        Evidence,
        FixStep,
        Incident,
        MemoryBudget,
        Report,
        RunInfo,
        Source,
    )
    from vllm_triage.errors import RuleError, SourceError, TriageError
    from vllm_triage.kinds import Confidence, Kind, Phase, Risk, Role, Severity
    from vllm_triage.library import Scanner, triage
    from vllm_triage.versions import __version__

__all__ = [
    "AnyFacts",
    "Confidence",
    "Evidence",
    "FixStep",
    "Incident",
    "Kind",
    "MemoryBudget",
    "Phase",
    "Report",
    "Risk",
    "Role",
    "RuleError",
    "RunInfo",
    "Scanner",
    "Severity",
    "Source",
    "SourceError",
    "TriageError",
    "__version__",
    "triage",
]

_HOMES = {
    "contract": (
        "AnyFacts", "Evidence", "FixStep", "Incident", "MemoryBudget", "Report", "RunInfo", "Source",
    ),
    "errors": ("RuleError", "SourceError", "TriageError"),
    "kinds": ("Confidence", "Kind", "Phase", "Risk", "Role", "Severity"),
    "library": ("Scanner", "triage"),
    "versions": ("__version__",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}


if not typing.TYPE_CHECKING:
    # A checker that saw this would take any name for a public one.

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for."""
        if name not in _HOME:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
