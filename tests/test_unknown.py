"""Exceptions that no rule knows: how sure it is that they are vLLM's."""

import pytest

from vllm_triage import Kind, Scanner
from vllm_triage.kinds import Confidence, Severity

RAISED = """Traceback (most recent call last):
  File "/srv/app/views.py", line 12, in index
    return render(request, "x.html", {"y": z})
NameError: name 'z' is not defined
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (RAISED, Confidence.POSSIBLE),
        ("INFO 12-04 10:00:00 [api_server.py:1896] vLLM API server version 0.10.2\n" + RAISED, Confidence.CERTAIN),
        (RAISED.replace("/srv/app/", "/opt/lib/python3.12/site-packages/vllm/"), Confidence.CERTAIN),
        ("\n".join("ERROR 12-04 10:00:00 [core.py:700] " + row for row in RAISED.splitlines()), Confidence.CERTAIN),
    ],
    ids=["any-program", "beside-a-banner", "in-vllm", "in-vllms-logger"],
)  # fmt: skip
def test_a_log_without_a_sign_of_vllm_may_be_of_any_program(
    log: str, expected: Confidence
) -> None:
    scanner = Scanner("pod.log")
    for row in log.splitlines():
        list(scanner.feed(row))
    list(scanner.close())
    (incident,) = scanner.report().incidents

    assert (incident.kind, incident.confidence) == (Kind.ENGINE_UNRECOGNISED, expected)


@pytest.mark.parametrize(
    ("file", "is_told"),
    [
        ("asyncio/events.py", False),
        ("site-packages/uvicorn/protocols/http/h11_impl.py", False),
        ("multiprocessing/connection.py", True),
        ("site-packages/vllm/v1/executor/multiproc_executor.py", True),
    ],
)
def test_a_connection_that_a_client_resets_is_no_incident(file: str, is_told: bool) -> None:
    scanner = Scanner("pod.log")
    for row in (
        "Traceback (most recent call last):",
        f'  File "/usr/lib/python3.12/{file}", line 88, in f',
        "ConnectionResetError: [Errno 104] Connection reset by peer",
    ):
        list(scanner.feed(row))
    list(scanner.close())

    assert bool(scanner.report().incidents) is is_told


@pytest.mark.parametrize(
    ("record", "raised", "is_fatal"),
    [
        ("[core.py:718] EngineCore failed to start.", "[core.py:718] ", True),
        ("[core.py:718] EngineCore encountered a fatal error.", "[core.py:718] ", True),
        ("[core.py:718] EngineCore failed to start.", "[serving_chat.py:200] ", False),
        ("[core.py:718] Something else.", "[core.py:718] ", False),
    ],
)
def test_what_is_logged_with_the_engines_death_is_what_it_died_of(
    record: str, raised: str, is_fatal: bool
) -> None:
    scanner = Scanner("pod.log")
    head = "(EngineCore_DP0 pid=2) ERROR 12-01 10:01:00 "
    for row in (
        head + record,
        head + raised + "Traceback (most recent call last):",
        head + raised + '  File "/x/site-packages/vllm/v1/engine/core.py", line 709, in run',
        head + raised + "ValueError: At most 1 image(s) may be provided in one prompt.",
    ):
        list(scanner.feed(row))
    list(scanner.close())
    report = scanner.report()
    (incident,) = [one for one in report.incidents if one.kind is Kind.REQUEST_INVALID]
    is_dead = any(one.kind is Kind.ENGINE_DEAD for one in report.incidents)

    assert (incident.severity is Severity.FATAL) is is_fatal
    assert report.root is not None
    assert (report.root.kind is Kind.REQUEST_INVALID) is (is_fatal or not is_dead)
