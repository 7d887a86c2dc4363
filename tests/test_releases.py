"""The release of a run where no banner says it."""

from pathlib import Path

import pytest
import regex

from tests.conftest import Fixture, fixtures, name_of
from vllm_triage import RunInfo, releases, triage
from vllm_triage.lines import parse as parse_line
from vllm_triage.releases import Place, site
from vllm_triage.reports import text as text_report
from vllm_triage.runs import Runs

ROOT = Path(__file__).parent.parent
BANNER = "INFO 06-12 09:15:01 api_server.py:161] vLLM API server version 0.6.3.post1"


def told(log: str) -> tuple[str | None, str | None]:
    runs = Runs()
    for number, text in enumerate(log.strip("\n").split("\n"), 1):
        for line in parse_line("x.log", number, text):
            runs.feed(line)
    info = runs.all[-1].info()
    return info.vllm_version, info.vllm_version_from


@pytest.mark.parametrize(
    ("log", "version"),
    [
        ("vllm                              0.10.2", "0.10.2"),
        ("Package  Version\n-------- -------\nvllm     0.8.5.post1", "0.8.5.post1"),
        ("vllm  0.9.1.dev7+g1a2b3c4  /opt/vllm", "0.9.1.dev7+g1a2b3c4"),
        ("[conda] vllm                      0.6.3.post1              pypi_0    pypi", "0.6.3.post1"),
        ("[pip3] vllm==0.9.1", "0.9.1"),
        ("vllm==0.10.2", "0.10.2"),
        ("Name: vllm\nVersion: 0.10.2\nSummary: A high-throughput engine", "0.10.2"),
        ("$ vllm --version\n0.10.2", "0.10.2"),
        ("# python3 -c 'import vllm; print(vllm.__version__)'\n0.7.3", "0.7.3"),
        ("vLLM Version: 0.5.5@09c7792610ada9f88bbf87d32b472dd44bf23cc2", "0.5.5"),
        ("vLLM Version                 : 0.10.2 (git sha: 1a2b3c4)", "0.10.2"),
        ('  File "/x/vllm-0.10.2.dist-info/entry_points.txt", line 1, in <module>', "0.10.2"),
        ("Downloading vllm-0.9.1-cp38-abi3-manylinux1_x86_64.whl (394.6 MB)", "0.9.1"),
        ("Successfully installed torch-2.8.0 vllm-0.10.2 xgrammar-0.1.23", "0.10.2"),
        ("ERROR: vllm 0.6.3 requires torch==2.4.0, but you have torch 2.5.1.", "0.6.3"),
        ("    sys.exit(load_entry_point('vllm==0.5.5+cpu', 'console_scripts', 'vllm')())", "0.5.5+cpu"),
    ],
)  # fmt: skip
def test_a_package_listing_tells_the_release(log: str, version: str) -> None:
    assert told(log) == (version, "package")


@pytest.mark.parametrize(
    "log",
    [
        "    Image:          vllm/vllm-openai:v0.10.2",
        "    image: docker.io/vllm/vllm-openai:v0.10.2",
        '  Normal  Pulling    12m  kubelet  Pulling image "vllm/vllm-openai:v0.10.2"',
        "Status: Downloaded newer image for vllm/vllm-openai:v0.10.2",
        "Unable to find image 'vllm/vllm-openai:v0.10.2' locally",
        '3f2a9c81d0be   vllm/vllm-openai:v0.10.2   "vllm serve"   2 hours ago   Up 2 hours',
        "$ docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.10.2 --model org/name",
        "    Image: vllm/vllm-openai:v0.10.2-x86_64",
    ],
)
def test_the_tag_of_an_image_tells_the_release(log: str) -> None:
    assert told(log) == ("0.10.2", "image")


@pytest.mark.parametrize(
    "log",
    [
        "This works in vllm 0.9.1 and fails in 0.10.0.",
        "vllm 0.9.1",
        "- vllm==0.9.1 works, vllm==0.10.0 does not",
        "We moved from vllm/vllm-openai:v0.9.1 to vllm/vllm-openai:v0.10.0 yesterday",
        "Found existing installation: vllm 0.9.1\n  Uninstalling vllm-0.9.1:",
        "Requirement: vllm>=0.9.1",
        "vllm-flash-attn   2.6.1",
        "compressed-tensors  0.10.2\nvllm_nccl_cu12  2.18.1.0.4.0",
        "Name: vllm-flash-attn\nVersion: 2.6.1",
        "Name: torch\nVersion: 2.6.1",
        "0.10.2",
        "vllm   0.1.dev1+g1a2b3c4",
        "vLLM Version: N/A (dev)",
        "INFO 06-12 09:15:01 [x.py:1] vllm==0.3.3",
        "(EngineCore_DP0 pid=12) vllm==0.3.3",
    ],
)
def test_what_people_write_of_releases_tells_none(log: str) -> None:
    assert told(log) == (None, None)


@pytest.mark.parametrize(
    "line",
    [
        "INFO 06-12 09:15:01 [logger.py:39] Received request cmpl-1: prompt: 'vllm==0.3.3\\n"
        "Successfully installed vllm-0.3.3 \\nvllm-0.3.3.dist-info/', params: SamplingParams(n=1)",
        'INFO:     10.0.0.1:51234 - "GET /vllm-0.3.3.dist-info/METADATA HTTP/1.1" 404 Not Found',
    ],
)
def test_requests_and_access_lines_are_no_evidence(line: str) -> None:
    assert told(line) == (None, None)


def test_the_banner_wins_whatever_stands_before_or_after() -> None:
    assert told(f"vllm==0.10.2\n{BANNER}") == ("0.6.3.post1", "banner")
    assert told(f"{BANNER}\nvllm==0.10.2") == ("0.6.3.post1", "banner")


def test_listings_that_contradict_each_other_tell_none() -> None:
    assert told("vllm==0.9.1\nvllm==0.9.1") == ("0.9.1", "package")
    assert told("vllm==0.9.1\nvllm==0.10.2") == (None, None)
    assert told("vllm==0.9.1\nvllm==0.10.2\nvllm==0.10.2") == (None, None)


def test_a_listing_holds_for_the_restarts_after_it() -> None:
    ready = "INFO:     Application startup complete."
    again = "INFO 06-12 09:15:01 llm_engine.py:161] Initializing an LLM engine with config: model='a/b'"
    assert told(f"vllm==0.3.3\n{again}\n{ready}\n{again}") == ("0.3.3", "package")


def test_a_dump_of_the_environment_tells_torch_too() -> None:
    runs = Runs()
    for line in parse_line("x", 1, "PyTorch version                : 2.8.0+cu128"):
        runs.feed(line)
    assert runs.all[0].torch_version == "2.8.0+cu128"


# vLLM 0.6.3: three records of two modules.
OLD = """\
INFO 10-17 13:22:43 model_runner.py:1060] Starting to load model org/name...
INFO 10-17 13:22:49 model_runner.py:1071] Loading model weights took 14.9888 GB
INFO 10-17 13:22:51 gpu_executor.py:122] # GPU blocks: 9043, # CPU blocks: 2048
INFO 10-17 13:22:51 gpu_executor.py:126] Maximum concurrency for 8192 tokens per request: 17.66x
"""


def test_code_lines_tell_the_release() -> None:
    assert told(OLD) == ("0.6.3", "code")


def moved(log: str, shift: int) -> str:
    """As a release would print it that has so many lines more above every statement."""
    return regex.sub(
        r'(?<=\.py:)\d+|(?<=\.py", line )\d+', lambda found: str(int(found[0]) + shift), log
    )


@pytest.mark.parametrize("shift", range(1, 51))
def test_shifted_lines_tell_none(shift: int) -> None:
    assert told(moved(OLD, shift)) == (None, None)


def test_places_of_one_file_are_not_enough() -> None:
    assert told("\n".join(OLD.split("\n")[:2])) == (None, None)


def test_words_that_no_release_prints_there_are_nothing() -> None:
    assert told(OLD.replace("Starting to", "Xtarting to").replace("Loading", "Xoading")) == (
        None,
        None,
    )


HIDDEN = regex.compile(
    r"(?m)^.*(?:API server version|[█▀▄]|LLM engine \(v|dist-info|serving model).*\n?"
)


def _real_runs() -> list[Fixture]:
    return [one for one in fixtures() if name_of(one).rpartition("/")[2].startswith("0_32_0-")]


@pytest.mark.parametrize("fixture", [pytest.param(one, id=name_of(one)) for one in _real_runs()])
def test_real_runs_without_their_banner_tell_their_release_or_none(fixture: Fixture) -> None:
    log = HIDDEN.sub("", fixture.log.read_text("utf-8", "replace"))
    assert told(log)[0] in ("0.32.0", None)
    for shift in (1, 7, 50):
        assert told(moved(log, shift)) == (None, None)


def test_most_real_runs_are_told_without_their_banner() -> None:
    answers = [
        told(HIDDEN.sub("", one.log.read_text("utf-8", "replace")))[1] for one in _real_runs()
    ]
    assert len(answers) >= 20
    assert answers.count("code") >= len(answers) * 0.6


def test_a_build_between_releases_tells_none() -> None:
    assert told((ROOT / "fixtures/healthy/report-dist-172.log").read_text("utf-8")) == (
        None,
        None,
    )


def test_releases_of_two_series_tell_none(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = {"a.py": {"1": [0, 10, 10]}, "b.py": {"2": [0, 20, 20, 25], "3": [1, 7]}}
    table = releases.Table(("0.9.0", "0.10.0", "0.10.2"), sites)
    monkeypatch.setattr(releases, "table", lambda: table)
    a, b, later = Place("a.py", "1", 10), Place("b.py", "2", 20), Place("b.py", "3", 7)
    assert releases.newest([a, b]) is None
    assert releases.newest([a, b, later]) == "0.10.0"
    assert releases.newest([a, b, later, Place("b.py", "2", 25)]) is None
    assert releases.newest([a, b, later, Place("b.py", "2", 26)]) is None


def test_the_table_is_not_read_for_a_run_with_a_banner() -> None:
    releases.table.cache_clear()
    told(f"{OLD}{BANNER}")
    assert releases.table.cache_info().misses == 0


def test_places_are_bounded() -> None:
    log = "\n".join(f"INFO 10-17 13:22:43 x.py:{n}] {n:09d} words" for n in range(1, 3000))
    runs = Runs()
    for number, text in enumerate(log.split("\n"), 1):
        for line in parse_line("x", number, text):
            runs.feed(line)
    assert len(runs.all[0].release._places) == 512


def test_the_table_is_small_and_sound() -> None:
    assert releases.path().stat().st_size < 150_000
    table = releases.table()
    assert table.releases[0] == "0.2.7"
    for rows in table.sites.values():
        for name, row in rows.items():
            assert len(name) <= len(site("x")) + 4
            assert row[0] + len(row) - 1 <= len(table.releases)
            assert row[1]
            assert row[-1]


def test_an_inferred_release_is_shown_as_such() -> None:
    log = OLD + (
        "ERROR 10-17 13:22:52 engine.py:366] ValueError: No available memory for the cache blocks. "
        "Try increasing `gpu_memory_utilization` when initializing the engine.\n"
    )
    report = triage(iter(log.split("\n")))
    assert isinstance(report.runs[0], RunInfo)
    assert report.runs[0].vllm_version_from == "code"
    page = text_report.render(report, width=100, colour=False)
    assert "(from code lines)" in page
    step = report.root
    assert step is not None
    assert all("vLLM <=" not in (one.why or "") for one in step.fix_steps)
