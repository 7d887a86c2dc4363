"""Read a vLLM crash log, name its root cause, show the proof and give the fix steps.

from vllm_triage import triage

    report = triage("pod.log")
    if report.root is not None:
        print(report.root.title, report.root.evidence[0].text)
"""

from vllm_triage.errors import RuleError, SourceError, TriageError
from vllm_triage.facts import AnyFacts
from vllm_triage.kinds import Confidence, Kind, Phase, Risk, Role, Severity
from vllm_triage.model import Evidence, FixStep, Incident, MemoryBudget, Report, RunInfo, Source
from vllm_triage.pipeline import triage
from vllm_triage.scanner import Scanner
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
