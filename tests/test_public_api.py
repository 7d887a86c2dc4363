"""The one supported import path."""

import inspect
from enum import EnumType
from importlib.resources import files
from operator import attrgetter
from typing import Any

import pytest
from pydantic import BaseModel

import vllm_triage
from vllm_triage import logging


def test_all_is_sorted_complete_and_importable() -> None:
    assert vllm_triage.__all__ == sorted(vllm_triage.__all__)
    public = {name for name in vars(vllm_triage) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(vllm_triage, name)).__name__ == "module"}

    assert public - modules <= set(vllm_triage.__all__)
    assert all(hasattr(vllm_triage, name) for name in vllm_triage.__all__)


def test_the_package_says_that_it_is_typed() -> None:
    assert files(vllm_triage).joinpath("py.typed").is_file()


# What programs may rely on: a change that breaks it needs a deprecation first (CONTRIBUTING.md).
SIGNATURES = {
    "triage": "(inputs, *, rules=(), redact=True, thresholds=None)",
    "Scanner": "(source='<stream>', *, rules=(), redact=True, catalogue=None, message_keys=(), like=None, max_runs=4096)",
    "Scanner.feed": "(self, line)",
    "Scanner.quiet": "(self, since)",
    "Scanner.close": "(self)",
    "Scanner.report": "(self, *, apply_steps=())",
    "logging.TriageHandler": "(level=0, *, tell=None, file=None, rules=(), redact=True, clock=monotonic)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_pinned(name: str) -> None:
    if name.startswith("logging."):
        value: Any = logging.TriageHandler
    else:
        value = attrgetter(name)(vllm_triage)
    signature = inspect.signature(value)
    bare = signature.replace(
        parameters=[
            one.replace(annotation=inspect.Parameter.empty, default=_plain(one.default))
            for one in signature.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )

    assert str(bare) == SIGNATURES[name]


class _Named:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


def _plain(default: object) -> object:
    return _Named(default.__name__) if inspect.isbuiltin(default) else default


def test_no_public_method_is_unpinned() -> None:
    methods = {f"Scanner.{name}" for name in vars(vllm_triage.Scanner) if not name.startswith("_")}
    callables = {
        name
        for name in vllm_triage.__all__
        if callable(getattr(vllm_triage, name))
        and not issubclass(type(getattr(vllm_triage, name)), EnumType | type(BaseModel))
        and not name.endswith("Error")
        and name != "AnyFacts"
    }

    assert methods | callables == SIGNATURES.keys() - {"logging.TriageHandler"}


def test_errors_are_caught_by_their_base() -> None:
    assert issubclass(vllm_triage.RuleError, vllm_triage.TriageError)
    assert issubclass(vllm_triage.SourceError, vllm_triage.TriageError)
    assert vllm_triage.TriageError.__bases__ == (Exception,)


def test_names_in_the_report_that_programs_compare_are_pinned() -> None:
    assert {name: [one.value for one in getattr(vllm_triage, name)] for name in NAMES} == NAMES
    assert vllm_triage.Report.model_fields["schema_version"].default == "1"


NAMES = {
    "Severity": ["fatal", "degraded", "notice"],
    "Role": ["cause", "symptom", "consequence"],
    "Confidence": ["certain", "likely", "possible"],
    "Phase": ["startup", "serving", "shutdown"],
    "Risk": ["read", "config", "restart", "destructive"],
}
