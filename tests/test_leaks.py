"""No secret and no prompt in any output, wherever in a log, a name or a command it stands."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_cli import LOG, run
from tests.test_prompts import BODIES, WORDINGS
from tests.test_redact import PLACES, SECRETS
from vllm_triage import Report, triage
from vllm_triage.hooks import Hook
from vllm_triage.metrics import MetricsFile
from vllm_triage.model import Update
from vllm_triage.pipeline import triage as plain_triage
from vllm_triage.reports import FORMATS, LINES, text
from vllm_triage.reports.brief import Brief
from vllm_triage.reports.records import Context
from vllm_triage.scanner import Scanner
from vllm_triage.stream import Filter, Protocol

BASE = Scanner()
HEAD = "INFO 12-01 10:00:00 [__init__.py:1] Automatically detected platform cuda."
# `§` is what is planted; each line is one that a rule takes as evidence, with facts from it.
SAID = (
    "ERROR 12-01 10:00:01 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.00 GiB is free. §",
    "ERROR 12-01 10:00:01 [core.py:1] SomeNewError: what no rule knows: §",
    "ValueError: unknown thing §",
    "api_server.py: error: unrecognized arguments: §",
    "api_server.py: error: argument --dtype: invalid choice: '§' (choose from 'auto', 'half')",
    "OSError: § is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
    "RuntimeError: [Errno 98] Address already in use: §",
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for EngineArgs\nhf_token\n  Unexpected keyword argument [type=unexpected_keyword_argument, input_value='§', input_type=str]",
    "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url §",
)
NAMES = (
    "$ HF_TOKEN={} vllm serve org/model --api-key {} --port 8000",
    "INFO 12-01 10:00:00 [utils.py:1] non-default args: {{'model': 'org/model', 'api_key': ['{}'], 'hf_token': '{}', 'port': 8000}}",
    "INFO 12-01 10:00:00 [api_server.py:1] args: Namespace(model='https://user:{}@hub.example/model', api_key='{}', hf_token='{}')",
)


def updates(lines: list[str], source: str = "<stream>") -> Iterator[Update]:
    scanner = Scanner(source, like=BASE)
    for line in lines:
        yield from scanner.feed(line)
    yield from scanner.close()


def outputs(lines: list[str], folder: Path) -> Iterator[tuple[str, str]]:
    """Everything that leaves for these lines, with its name."""
    report = plain_triage(iter(lines))
    for name, render in FORMATS.items():
        yield name, render(report)
    yield "text in colour", text.render(report, colour=True, every=True)
    found = list(updates(lines))
    context = Context(now_ns=lambda: 0)
    for name, line in LINES.items():
        yield f"{name} of a stream", "\n".join(line(one, context) for one in found)
    brief = Brief()
    yield "watch", "\n".join(map(brief, found))
    metrics = MetricsFile(folder / "x.prom", lambda _: None, now=lambda: 0)
    for one in found:
        metrics(one)
    yield "metrics", metrics.text()
    for protocol in (Protocol.JSON, Protocol.RSYSLOG):
        told: list[Update] = []
        stream = Filter(protocol, tell=told.append, scanner=Scanner(like=BASE))
        records = [json.dumps({"log": line, "kubernetes": {"pod_name": "p"}}) for line in lines]
        out = stream.feed("".join(f"{record}\n" for record in records).encode(), 0.0)
        out += stream.close()
        added = [json.loads(row).get("vllm_triage") for row in out.decode().splitlines()]
        yield f"filter {protocol}", json.dumps(added) + "".join(map(LINES["ndjson"], told, [context] * len(told)))  # fmt: skip


def kept(report: Report) -> str:
    return FORMATS["json"](report)


@pytest.mark.parametrize("said", SAID, ids=range(len(SAID)))
@settings(max_examples=8, deadline=None)
@given(secret=SECRETS.map("Zq7{}".format), data=st.data())
def test_a_secret_is_in_no_output(
    tmp_path_factory: pytest.TempPathFactory, said: str, secret: str, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3))
    lines = [HEAD]
    lines += [name.format(*[secret] * 3) for name in NAMES]
    for place in places:
        lines += said.replace("§", place.replace("§", secret)).split("\n")
    for name, shown in outputs(lines, tmp_path_factory.mktemp("out")):
        assert secret not in shown, name


QUOTING = (
    SAID[1],
    SAID[2],
    "openai.BadRequestError: Error code: 400 - {'error': {'message': \"§\"}}",
)


@pytest.mark.parametrize("said", QUOTING, ids=range(len(QUOTING)))
@settings(max_examples=10, deadline=None)
@given(word=st.text("abcdefghij", min_size=6, max_size=9), data=st.data())
def test_a_prompt_is_in_no_output(
    tmp_path_factory: pytest.TempPathFactory, said: str, word: str, data: st.DataObject
) -> None:
    word = f"Zq7{word}"
    prompt = data.draw(st.sampled_from(("{0} of {0}", "it's {0}\n {0}", 'say "{0}" {0}'))).format(
        word
    )
    asked, body = (
        data.draw(st.sampled_from([*WORDINGS.values()])),
        data.draw(st.sampled_from(BODIES)),
    )
    lines = [
        HEAD,
        asked.format(repr(prompt)),
        *said.replace("§", body.format(repr(prompt))).split("\n"),
        SAID[0].replace("§", ""),
    ]
    shown = dict(outputs(lines, tmp_path_factory.mktemp("out")))
    assert "oom." in shown["text"]
    for name, text_of in shown.items():
        assert word not in text_of, name


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_in_an_unknown_exception_is_in_no_output(tmp_path: Path, place: str) -> None:
    secret = "aB3dE6gH9jK2mN5pQ8sT"
    said = place.replace("§", secret)
    lines = [HEAD, "Traceback (most recent call last):", '  File "/x/vllm/engine.py", line 1, in run', f"    connect({said})",
             f"SomeNewError: {said}"]  # fmt: skip
    for name, shown in outputs(lines, tmp_path):
        assert secret not in shown, name


def test_a_secret_in_the_name_of_a_source_or_process_is_in_no_output(tmp_path: Path) -> None:
    secret = "aB3dE6gH9jK2mN5pQ8sT"
    log = tmp_path / f"token={secret}.log"
    log.write_text(SAID[0].replace("§", "") + "\n")
    report = triage(log)

    assert report.root is not None
    assert report.incidents[0].id.startswith("oom.")
    for name, render in FORMATS.items():
        assert secret not in render(report), name
    named = list(updates([SAID[0]], f"pod/api_key={secret}"))
    assert named
    assert all(secret not in LINES["ndjson"](one, Context()) for one in named)


@pytest.mark.parametrize(
    "args",
    [
        ("https://user:§@hub.example/x.log",),
        ("no/hf_§.log",),
        ("--apply-steps", "token=§", "x.log"),
        ("--rules", "no/api_key=§", "x.log"),
        ("-o", "no/password=§/x", str(LOG)),
        ("explain", "api_key=§"),
        ("watch", "--exec", "no-such --api-key §", "x.log"),
        ("watch", "--metrics-file", "no/token=§/x.prom", "x.log"),
        ("report", "-o", "no/token=§/x.zip", "x.log"),
        ("report", "--for-github", "no/token=§"),
        ("filter", "hf_§"),
        ("check-rules", "no/api_key=§"),
    ],
)
def test_a_secret_in_an_argument_is_in_no_error(args: tuple[str, ...]) -> None:
    secret = "aB3dE6gH9jK2mN5pQ8sT"
    done = run(*(arg.replace("§", secret) for arg in args))

    assert done.returncode == 2
    assert "redacted" in done.stderr + done.stdout
    assert secret not in done.stderr + done.stdout


def test_what_a_hook_says_when_it_fails_is_redacted(capfd: pytest.CaptureFixture[str]) -> None:
    from vllm_triage.cli_stream import warn

    hook = Hook("sh -c 'echo api_key=aB3dE6gH9jK2mN5pQ8sT; exit 3'", warn)
    for one in updates([SAID[0]]):
        hook(one)
    hook.close()

    assert "exited with 3" in (said := capfd.readouterr().err)
    assert "aB3dE6gH9jK2mN5pQ8sT" not in said


def test_a_secret_is_in_no_record_of_the_handler(caplog: pytest.LogCaptureFixture) -> None:
    from vllm_triage.logging import TriageHandler

    logger = logging.getLogger("leaks")
    handler = TriageHandler()
    logger.addHandler(handler)
    logger.error("torch.OutOfMemoryError: CUDA out of memory. api_key='aB3dE6gH9jK2mN5pQ8sT'")
    logger.removeHandler(handler)
    handler.close()
    told = [record for record in caplog.records if record.name == "vllm_triage"]

    assert told
    assert all("aB3dE6gH9jK2mN5pQ8sT" not in str(record.__dict__) for record in told)


def test_no_redact_keeps_what_the_log_says() -> None:
    report = triage(
        iter([SAID[2].replace("§", "api_key='aB3dE6gH9jK2mN5pQ8sT' prompt='x'")]), redact=False
    )

    assert "api_key='aB3dE6gH9jK2mN5pQ8sT' prompt='x'" in report.incidents[0].evidence[0].text
