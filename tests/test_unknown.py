"""Exceptions that no rule knows: how sure it is that they are vLLM's."""

import pytest

from vllm_triage import Kind, Scanner
from vllm_triage.kinds import Confidence

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
