"""A user gets pydantic models, a run makes plain objects: the two say the same."""

import pytest
from pydantic import BaseModel, ValidationError

from tests.conftest import FIXTURES
from vllm_triage import Report, Scanner, contract, pipeline, triage
from vllm_triage.contract import validated
from vllm_triage.facts import FAMILIES
from vllm_triage.model import Incident
from vllm_triage.plain import Plain, fields

LOG = FIXTURES / "oom" / "kv-cache-too-small.log"
MODELS = [
    item
    for item in vars(contract).values()
    if isinstance(item, type) and issubclass(item, BaseModel) and issubclass(item, Plain)
]


def test_every_family_of_facts_has_its_model() -> None:
    assert {one.__name__ for one in FAMILIES.values()} <= {one.__name__ for one in MODELS}


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_a_model_has_the_fields_and_the_text_of_its_plain_class(kind: type[BaseModel]) -> None:
    plain = next(
        base
        for base in kind.__mro__
        if issubclass(base, Plain) and not issubclass(base, BaseModel)
        if base.__name__ == kind.__name__
    )

    assert list(kind.model_fields) == list(fields(plain))
    assert kind.__doc__ == plain.__doc__
    for name, field in kind.model_fields.items():
        if hasattr(plain, name):
            assert field.default == getattr(plain, name), name


def test_a_report_says_as_a_model_what_it_says_as_a_plain_object() -> None:
    plain = pipeline.triage(LOG)
    report = triage(LOG)

    assert not isinstance(plain, BaseModel)
    assert isinstance(report, Report)
    assert validated(plain) == report
    assert validated(report) is report
    assert report.root is not None
    assert plain.root is not None
    assert report.root.facts.model_dump() == {
        "family": "oom", **{name: getattr(plain.root.facts, name) for name in fields(type(plain.root.facts))}
    }  # fmt: skip
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_a_stream_s_incidents_are_models_too() -> None:
    scanner = Scanner("pod.log")
    told = [one for line in LOG.read_text("utf-8").split("\n") for one in scanner.feed(line)]
    told += scanner.close()

    assert told
    assert all(isinstance(one, BaseModel) for one in told)
    assert isinstance(scanner.report(), Report)


def test_a_model_is_frozen_and_takes_no_unknown_field() -> None:
    report = triage(LOG)

    with pytest.raises(ValidationError, match="frozen"):
        report.root_cause = None  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Report.model_validate({"tool_version": "1", "sauces": []})


def test_plain_objects_are_equal_when_their_fields_are() -> None:
    first, second = (pipeline.triage(LOG).incidents[0] for _ in range(2))

    assert first == second
    assert first != first.model_copy(update={"count": first.count + 1})
    assert repr(first).startswith("Incident(id=")
    assert list(fields(Incident))[:3] == ["id", "kind", "area"]
