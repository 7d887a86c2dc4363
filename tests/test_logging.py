"""The handler tells what a process logs, and never harms the process."""

import json
import logging
import logging.config
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from vllm_triage import Kind
from vllm_triage.logging import MAX_PER_SECOND, LineFormatter, TriageHandler
from vllm_triage.model import Update

CONFIG = FIXTURES.parent / "docs" / "logging" / "vllm-logging.json"
OOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free."


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


OutOfMemoryError.__module__ = "torch"


class EngineDeadError(Exception):
    """As vLLM names it."""


EngineDeadError.__module__ = "vllm.v1.engine.exceptions"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("vllm.v1.engine.core")
    found.setLevel(logging.DEBUG)
    found.propagate = False
    yield found
    for handler in list(found.handlers):
        found.removeHandler(handler)
        handler.close()


def attached(logger: logging.Logger, **settings: Any) -> tuple[TriageHandler, list[Update]]:
    told: list[Update] = []
    handler = TriageHandler(**({"tell": told.append} | settings))
    logger.addHandler(handler)
    return handler, told


def fail(error: Exception) -> None:
    raise error


def crash(logger: logging.Logger, message: str = "EngineCore failed to start.") -> None:
    try:
        fail(OutOfMemoryError(OOM))
    except OutOfMemoryError:
        logger.exception(message)


def crash_as(handler: TriageHandler, number: int) -> None:
    """As a process of its own: one process says an exception twice without counting twice."""
    text = f"torch.OutOfMemoryError: {OOM}"
    record = logging.LogRecord("vllm", logging.ERROR, "/x/core.py", 7, text, None, None)
    record.processName, record.process = f"Worker_TP{number}", 100 + number
    handler.handle(record)


def test_an_exception_is_told_with_the_record_that_logs_it(logger: logging.Logger) -> None:
    _, told = attached(logger)
    logger.info("vLLM API server version %s", "0.10.2")
    logger.info("non-default args: %s", {"model": "org/name", "max_model_len": 8192})
    assert told == []
    crash(logger)

    assert told[0].kind is Kind.OOM_LOAD
    assert told[0].evidence[0].text.endswith(OOM)
    assert "org/name" in " ".join(step.command or "" for step in told[0].fix_steps)
    assert {one.caused_by for one in told[1:]} <= {told[0].id}


def test_a_prompt_that_quotes_a_crash_is_none(logger: logging.Logger) -> None:
    _, told = attached(logger)
    logger.info("Received request cmpl-1: prompt: 'torch.%s', params: None", f"OutOfMemoryError: {OOM}")  # fmt: skip
    logger.info("All is well\nTraceback (most recent call last):\n  no")

    assert told == []


def test_nothing_that_goes_wrong_reaches_the_application(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Update) -> None:
        raise ValueError("no room")

    handler, _ = attached(logger, tell=broken)
    handler.handle(
        logging.LogRecord("vllm", logging.ERROR, "/x/a.py", 1, "%d things", ("none",), None)
    )
    for _ in range(3):
        crash(logger)

    said = [record for record in caplog.records if record.name == "vllm_triage"]
    assert len(said) == 1
    assert (
        said[0].message == "an incident could not be told (ValueError: no room); logging goes on"
    )


def test_what_it_says_itself_is_never_read(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    handler = TriageHandler()
    root.addHandler(handler)
    try:
        crash(logging.getLogger("vllm.x"))
        logging.getLogger("vllm_triage").warning("torch.OutOfMemoryError: %s", OOM)
    finally:
        root.removeHandler(handler)
        handler.close()

    said = [one for one in caplog.records if one.name == "vllm_triage"]
    assert sum("fatal: GPU out of memory" in one.getMessage() for one in said) == 1
    assert said[0].levelno == logging.WARNING
    assert said[0].__dict__["vllm_triage"]["kind"] == "oom.load"


def test_telling_may_log(logger: logging.Logger) -> None:
    told: list[Update] = []

    def tell(update: Update) -> None:
        told.append(update)
        logger.error("torch.OutOfMemoryError: %s", OOM)

    attached(logger, tell=tell)
    crash(logger)

    assert [one.count for one in told if one.kind is Kind.OOM_LOAD] == [1]


def test_threads_that_log_at_once_lose_nothing(logger: logging.Logger) -> None:
    handler, told = attached(logger)
    threads = [threading.Thread(target=crash_as, args=(handler, n)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()

    assert [one.count for one in told if one.kind is Kind.OOM_LOAD][-1] == 20


def test_a_flood_is_skipped_but_not_its_errors(logger: logging.Logger) -> None:
    handler, told = attached(logger, clock=lambda: 5.0)
    for number in range(MAX_PER_SECOND + 100):
        logger.info("step %d", number)
    crash(logger)

    assert handler.skipped == 100
    assert told[0].kind is Kind.OOM_LOAD


def test_a_huge_record_keeps_its_exception(logger: logging.Logger) -> None:
    _, told = attached(logger)
    crash(logger, "x" * 1_000_000)

    assert told[0].kind is Kind.OOM_LOAD


def test_closing_tells_a_consequence_that_waited_for_its_cause(logger: logging.Logger) -> None:
    handler, told = attached(logger)
    logger.info("vllm.v1.engine.exceptions.EngineDeadError is what we wait for")
    text = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    try:
        fail(EngineDeadError(text))
    except EngineDeadError:
        logger.exception("AsyncLLM output_handler failed.")
    handler.close()

    assert [one.kind for one in told] == [Kind.ENGINE_DEAD]


def test_the_prefix_stands_before_every_line() -> None:
    record = logging.LogRecord("vllm", logging.INFO, "/x/core.py", 7, "a\nb", None, None)
    record.processName, record.process = "EngineCore_DP0", 12

    rows = LineFormatter(datefmt="12-01 05:00:00").format(record).split("\n")

    prefix = "(EngineCore_DP0 pid=12) INFO 12-01 05:00:00 [core.py:7] "
    assert rows == [f"{prefix}a", f"{prefix}b"]


def test_the_ready_configuration_makes_a_process_triage_itself(tmp_path: Path) -> None:
    config = json.loads(CONFIG.read_text())
    incidents = tmp_path / "incidents.ndjson"
    config["handlers"]["triage"]["file"] = str(incidents)
    (tmp_path / "logging.json").write_text(json.dumps(config))
    # What vllm/logger.py does with VLLM_LOGGING_CONFIG_PATH in all releases that know it.
    script = f"""
import json, logging, logging.config
with open({str(tmp_path / "logging.json")!r}, encoding="utf-8") as file:
    logging.config.dictConfig(json.loads(file.read()))
logger = logging.getLogger("vllm.v1.engine.core")
logger.info("vLLM API server version 0.10.2")
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
try:
    raise OutOfMemoryError({OOM!r})
except OutOfMemoryError:
    logger.exception("EngineCore failed to start.")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    kinds = [json.loads(line)["kind"] for line in incidents.read_text().splitlines()]
    assert kinds[0] == "oom.load"
    assert done.stderr == ""
    rows = done.stdout.splitlines()
    assert rows[0].startswith("INFO ")
    assert rows[0].endswith("] vLLM API server version 0.10.2")
    assert all(row.startswith("ERROR ") for row in rows[1:])
    assert rows[-1].endswith(f"torch.OutOfMemoryError: {OOM}")


def test_a_listener_that_fails_and_a_wrong_record_cost_no_knowledge_of_the_run(
    logger: logging.Logger,
) -> None:
    told: list[Update] = []

    def tell(update: Update) -> None:
        if update.kind is Kind.OOM_LOAD and not told:
            told.append(update)
            raise OSError("no route to the pager")
        told.append(update)

    handler, _ = attached(logger, tell=tell)
    logger.info("non-default args: %s", {"model": "org/name", "max_model_len": 8192})
    handler.handle(
        logging.LogRecord("vllm", logging.INFO, "/x/a.py", 1, "%d things", ("none",), None)
    )
    crash(logger)
    handler.close()

    first = told[0]
    assert "org/name" in " ".join(step.command or "" for step in first.fix_steps)
    # It was told, though its listener failed: not again as a new one.
    assert [one.revision for one in told if one.id == first.id] == [1]
    assert {one.kind for one in told} == {Kind.OOM_LOAD, Kind.ENGINE_DEAD}


def test_after_a_fault_of_ours_no_id_comes_twice(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, told = attached(logger)
    text = f"torch.OutOfMemoryError: {OOM}"
    logger.error(text)
    with monkeypatch.context() as patched:
        patched.setattr("vllm_triage.scanner.Scanner.feed_numbered", crash_as)
        logger.error("a line that breaks it")
    logger.error(text)
    handler.close()

    ids = [one.id for one in told if one.revision == 1]
    assert len(ids) == 2
    assert len(set(ids)) == 2


def test_a_file_that_cannot_be_opened_keeps_no_server_from_starting(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    handler = TriageHandler(file=tmp_path / "none" / "incidents.ndjson")
    logger.addHandler(handler)
    crash(logger)

    said = [one.getMessage() for one in caplog.records if one.name == "vllm_triage"]
    assert said[0] == (
        f"{tmp_path}/none/incidents.ndjson: cannot be written: No such file or directory; "
        "incidents are logged here"
    )
    assert said[1].startswith("fatal: GPU out of memory")


def test_each_process_tells_under_a_name_of_its_own(tmp_path: Path) -> None:
    script = f"""
import logging, os, sys
from vllm_triage.logging import TriageHandler
logger = logging.getLogger("vllm.v1.engine.core")
logger.propagate = False
logger.setLevel(logging.INFO)
logger.addHandler(TriageHandler(file={str(tmp_path / "told")!r}))
logger.info("non-default args: %s", {{"model": "org/name"}})
child = os.fork()
logger.error("torch.OutOfMemoryError: {OOM}")
logging.shutdown()
if not child:
    os._exit(0)
os.waitpid(child, 0)
print(os.getpid(), child)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert {one["id"] for one in told} == {
        f"oom.load:<logging {pid}>:2" for pid in done.stdout.split()
    }
    assert all(one["root_cause"] == one["id"] for one in told)
    assert {one["evidence"][0]["source"] for one in told} == {one["id"][9:-2] for one in told}


@pytest.mark.parametrize("message", ["p", "12", "ERROR", ""])
def test_a_message_that_is_a_word_of_the_prefix_has_the_whole_prefix(message: str) -> None:
    record = logging.LogRecord("vllm", logging.ERROR, "/x/core.py", 7, message, None, None)
    record.processName, record.process, record.exc_text = "EngineCore_DP0", 12, "Traceback"

    rows = LineFormatter(datefmt="12-01 05:00:00").format(record).split("\n")

    prefix = "(EngineCore_DP0 pid=12) ERROR 12-01 05:00:00 [core.py:7] "
    assert rows == [f"{prefix}{message}", f"{prefix}Traceback"]


def test_what_is_logged_after_the_end_of_logging_is_no_fault() -> None:
    told: list[Update] = []
    handler = TriageHandler(tell=told.append)
    handler.close()
    handler.handle(
        logging.LogRecord(
            "vllm", logging.ERROR, "/x/a.py", 1, f"torch.OutOfMemoryError: {OOM}", None, None
        )
    )
    handler.flush()
    handler.close()

    assert [one.kind for one in told] == [Kind.OOM_LOAD]
