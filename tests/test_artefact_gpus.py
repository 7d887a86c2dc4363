"""Listings of GPUs: every output of `nvidia-smi` read, and what it says of a run."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import FIXTURES
from vllm_triage.artefacts.formats import format_of
from vllm_triage.artefacts.gpu_listings import read
from vllm_triage.artefacts.heads import dialect
from vllm_triage.artefacts.observations import Reading, line
from vllm_triage.model import Incident
from vllm_triage.pipeline import triage_paths

CASES = FIXTURES / "artefacts"
SAVED_SLOW = """{"model_id": "org/name", "request_rate": "inf", "duration": 200.0, "completed": 100,
"request_throughput": 0.5, "output_throughput": 64.0, "total_output_tokens": 12800}"""


def of(text: str) -> Reading:
    return read([line("x", number, one) for number, one in enumerate(text.split("\n"), 1)])


def told(text: str) -> dict[str, Any]:
    """What is told of the run."""
    return next((one.values for one in of(text).observations if one.subject == "run"), {})


def gpus(text: str) -> list[dict[str, Any]]:
    return [one.values for one in of(text).observations if one.subject == "gpu"]


def case(name: str) -> str:
    return (CASES / name).read_text("utf-8")


def query(*rows: str) -> str:
    head = ["==============NVSMI LOG==============", "", "Driver Version            : 550.127.05"]
    return "\n".join([*head, "GPU 00000000:10:1C.0", *rows])


def root(tmp_path: Path, **files: str) -> Incident | None:
    for name, text in files.items():
        (tmp_path / f"{name}.txt").write_text(text, "utf-8")
    found = triage_paths(sorted(tmp_path.iterdir()))
    return next((one for one in found.incidents if one.id == found.root_cause), None)


def test_the_table_of_two_rows_is_read() -> None:
    first, second = gpus(case("gpu-table-418/smi.txt"))

    assert first == {
        "gpu_index": 0, "gpu_name": "Tesla P100-PCIE...", "pci": "00000000:00:04.0", "ecc_errors": 0,
        "driver_version": "418.87.01", "cuda_version": "10.1", "gpu_utilization_pct": 38, "gpu_samples": 1,
        "gpu_memory_used_pct": 12.5, "total_bytes": 16280 * 1024**2,
    }  # fmt: skip
    assert "ecc_errors" not in second
    assert "gpu_utilization_pct" not in second


def test_the_table_with_mig_is_read_and_the_gpu_of_the_server_counts() -> None:
    run = told(case("gpu-table-mig/smi.txt"))

    assert (run["gpu_utilization_pct"], run["gpu_memory_used_pct"]) == (93.0, 90.8)
    assert (run["visible_gpus"], run["gpu_name"]) == (2, "NVIDIA A100-PCIE-40GB")
    assert "other_process" not in run


def test_a_gpu_that_does_not_tell_its_memory_is_read() -> None:
    first, second = gpus(case("gpu-table-590/smi.txt"))

    assert first["total_bytes"] == 189471 * 1024**2
    assert (second["gpu_name"], "total_bytes" in second) == ("NVIDIA GB10", False)


def test_a_table_printed_again_and_again_is_as_many_samples() -> None:
    busy = case("gpu-table-mig/smi.txt")
    run = told(busy + busy.replace("93%", "73%") + busy.replace("93%", "83%"))

    assert (run["gpu_utilization_pct"], run["gpu_samples"]) == (83.0, 3)


def test_columns_are_read_by_their_names() -> None:
    run = told(case("gpu-monitor-csv/gpus.csv"))

    assert (run["gpu_utilization_pct"], run["gpu_samples"]) == (98.0, 3)
    assert run["gpu_slowdown"] == "hardware thermal slowdown"
    assert run["driver_version"] == "580.126.09"


def test_rows_that_name_no_gpu_are_samples_only_of_different_seconds() -> None:
    guide = "memory.used [MiB], memory.free [MiB]\n38000 MiB, 2000 MiB\n"
    at_once = (
        "utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n" + "60 %, 1 MiB, 2 MiB\n" * 8
    )
    timed = (
        "timestamp, utilization.gpu [%]\n2026/08/17 10:00:00.001, 40 %\n"
        "2026/08/17 10:00:00.004, 60 %\n2026/08/17 10:00:02.001, 70 %\n"
    )  # fmt: skip

    assert told(guide)["gpu_memory_used_pct"] == 95.0
    assert told(at_once)["gpu_samples"] == 1
    assert (told(timed)["gpu_utilization_pct"], told(timed)["gpu_samples"]) == (60.0, 2)


def test_without_names_only_what_the_units_tell_is_read() -> None:
    two = told("0, NVIDIA L4, 40 %, 100 MiB, 400 MiB\n1, NVIDIA L4, 60 %, 300 MiB, 400 MiB\n")

    assert (two["gpu_utilization_pct"], two["gpu_memory_used_pct"]) == (50.0, 75.0)
    # One row does not show whether the last number is what there is or what is free.
    assert "gpu_memory_used_pct" not in told("0, NVIDIA L4, 40 %, 100 MiB, 400 MiB\n")


def test_programs_are_told_from_the_servers_own() -> None:
    csv = "pid, process_name, used_gpu_memory [MiB]\n7, {}, 2048 MiB\n"
    pmon = (
        "# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command\n"
        "# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name\n"
        "    1         7      C     10      7      0      -      -      -   2048      0    llama-server\n"
    )  # fmt: skip

    assert told(csv.format("/app/llama-server"))["other_process"] == "/app/llama-server (pid 7, 2.0 GiB)"  # fmt: skip
    assert told(pmon)["other_process"] == "llama-server (pid 7, 2.0 GiB of GPU 1)"
    for own in ("VLLM::EngineCore", "/usr/bin/python3", "ray::RayWorkerWrapper", "[Not Found]"):
        assert "other_process" not in told(csv.format(own) + "8, x, 511 MiB\n"), own


def test_a_report_is_read_with_its_samples_programs_and_reasons() -> None:
    text = query(
        "    Product Name                          : NVIDIA H100",
        "    FB Memory Usage",
        "        Total                             : 1000 MiB",
        "        Used                              : 900 MiB",
        "    BAR1 Memory Usage",
        "        Total                             : 5 MiB",
        "    Utilization",
        "        GPU                               : 12 %",
        "    GPU Utilization Samples",
        "        Duration                          : 14.06 sec",
        "        Number of Samples                 : 71",
        "        Max                               : 99 %",
        "        Avg                               : 55 %",
        "    Clocks Event Reasons",
        "        SW Power Cap                      : Active",
        "        HW Slowdown                       : Active",
        "            HW Power Brake Slowdown       : Active",
        "    Processes",
        "        Process ID                        : 1234",
        "            Type                          : C",
        "            Name                          : /opt/tritonserver",
        "            Used GPU Memory               : 800 MiB",
    )

    run = told(text)

    assert (run["gpu_utilization_pct"], run["gpu_samples"]) == (55.0, 71)
    assert run["gpu_memory_used_pct"] == 90.0
    assert run["gpu_slowdown"] == "hardware power brake"
    assert run["other_process"] == "/opt/tritonserver (pid 1234, 0.8 GiB of GPU 0)"


@pytest.mark.parametrize(
    ("rows", "severity"),
    [
        (["    Remapped Rows", "        Pending                  : Yes"], "degraded"),
        (["    Remapped Rows", "        Remapping Failure Occurred : Yes"], "fatal"),
        (["    Retired Pages", "        Pending Page Blacklist   : Yes"], "degraded"),
        (["    MIG Mode", "        Pending                  : Yes"], None),
        (["    ECC Errors", "        Volatile", "            SRAM Uncorrectable Parity : 1"], "degraded"),
        (["    ECC Errors", "        Volatile", "            Double Bit", "                Total : 2"], "degraded"),
        (["    ECC Errors", "        Volatile", "            DRAM Correctable : 9"], None),
        (["    ECC Errors", "        Aggregate", "            DRAM Uncorrectable : 9"], None),
        (["    GPU Recovery Action           : Reboot"], "fatal"),
        (["    GPU Recovery Action           : None"], None),
        (["    GPU Reset Status", "        Reset Required           : Yes"], "fatal"),
    ],
)  # fmt: skip
def test_what_a_report_says_of_the_card_is_judged(
    tmp_path: Path, rows: list[str], severity: str | None
) -> None:
    found = root(tmp_path, gpu=query(*rows))

    assert (found.severity.value if found else None) == severity
    if found is not None:
        assert found.kind.value == "gpu.hardware"
        assert getattr(found.facts, "pci", None) == "00000000:10:1C.0"


@pytest.mark.parametrize(
    ("share", "used", "first", "aside"),
    [
        # The guide: utilization low and memory full, a shorter context; low, more sequences.
        (79, 95, "--max-model-len", ("--max-num-seqs 512",)),
        (79, 94, "--max-num-seqs", ("--max-model-len 4096",)),
        (80, 94, "--max-num-batched-tokens", ("--max-num-seqs 512", "--max-model-len 4096")),
    ],
)  # fmt: skip
def test_the_load_of_the_gpus_orders_the_steps(
    tmp_path: Path, share: int, used: int, first: str, aside: tuple[str, ...]
) -> None:
    head = "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"
    rows = [f"2026/08/17 10:00:0{at}.001, 0, {share} %, {used} MiB, 100 MiB" for at in range(3)]

    found = root(tmp_path, gpu="\n".join([head, *rows]), result=SAVED_SLOW)

    assert found is not None
    assert found.kind.value == "performance.low_throughput"
    steps = [one.command or "" for one in found.fix_steps]
    assert first in steps[0]
    set_aside = [one for one in found.fix_steps if one.command is None]
    for text in aside:
        why = [one.why for one in set_aside if (one.documented_as or "").endswith(text)]
        assert [(one or "")[:9] for one in why] == ["not here:"], text


def test_one_sample_does_not_replace_watching_the_gpus(tmp_path: Path) -> None:
    found = root(tmp_path, gpu=case("gpu-table-418/smi.txt"), result=SAVED_SLOW)

    assert found is not None
    assert found.fix_steps[0].command == "watch -n 1 nvidia-smi"
    assert "busy 38 % of the time" in found.summary


def test_a_driver_is_too_old_only_where_no_gpu_was_used(tmp_path: Path) -> None:
    torch = "PyTorch version                  : 2.9.0+cu130\n"
    up = torch + "INFO:     Application startup complete.\n"
    old, needed = case("gpu-table-mig/smi.txt"), case("gpu-table-590/smi.txt")

    found = root(tmp_path, log=torch, smi=old)
    assert found is not None
    assert found.kind.value == "gpu.driver"
    assert root(tmp_path, log=torch, smi=needed) is None
    assert root(tmp_path, log=torch.replace("cu130", "cu128"), smi=old) is None
    assert root(tmp_path, log=up, smi=old) is None


def test_of_several_files_the_one_with_more_samples_tells_the_load(tmp_path: Path) -> None:
    found = root(
        tmp_path,
        a_table=case("gpu-table-mig/smi.txt"),
        b_samples=case("bench-throughput-idle-gpus/dmon.txt"),
        result=SAVED_SLOW,
    )

    assert found is not None
    assert getattr(found.facts, "gpu_utilization_pct", None) == 41.0


@pytest.mark.parametrize(
    "path",
    [one for one in CASES.glob("*/*") if one.name.startswith(("smi", "gpu", "dmon", "programs", "values"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)  # fmt: skip
def test_a_log_that_begins_with_a_listing_stays_a_log(path: Path) -> None:
    listing = path.read_text("utf-8").rstrip("\n") + "\n"

    assert format_of(listing) is not None
    for said in (
        "INFO 12-01 10:00:00 [api_server.py:1] vLLM API server version 0.11.0\n",
        "(EngineCore pid=12) ERROR 12-01 10:00:00 [core.py:1] CUDA out of memory\n",
        "[rank0]: Traceback (most recent call last):\n",
        "torch.OutOfMemoryError: CUDA out of memory.\n",
        "==> starting vllm\n",
        "+ exec vllm serve org/name\n" if not listing.startswith(("|", "+")) else "vllm serve\n",
    ):
        found = format_of(listing + said)
        is_drawn = said.startswith("+") and "NVIDIA-SMI" in listing
        assert found is None or is_drawn or path.suffix == ".xml", said


ALPHABET = sorted(
    set(case("gpu-table-mig/smi.txt") + case("gpu-query-xml/gpu.xml") + "\x00\u0663\u00b2")
)
LISTINGS = [
    "gpu-table-mig/smi.txt", "gpu-query-ecc/gpu.txt", "gpu-query-xml/gpu.xml", "gpu-list/gpus.txt",
    "gpu-list/programs.txt", "gpu-list/values.txt", "gpu-monitor-csv/gpus.csv",
    "bench-throughput-idle-gpus/dmon.txt",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LISTINGS), st.integers(0, 4000), st.text(st.sampled_from(ALPHABET), max_size=60), st.integers(0, 60))  # fmt: skip
def test_no_listing_raises_anything(name: str, at: int, text: str, gone: int) -> None:
    whole = case(name)
    for damaged in (whole[:at] + text + whole[at + gone :], whole[:at], whole.replace("0", text)):
        for one in of(damaged).observations:
            assert one.lines
            for value in one.values.values():
                assert isinstance(value, str) or 0 <= value < 1e30


def test_numbers_beyond_all_measure_are_no_memory() -> None:
    huge = "9" * 300
    assert gpus(f"index, memory.used [MiB], memory.total [MiB]\n0, {huge} MiB, -1 MiB\n") == [
        {"gpu_index": 0.0}
    ]


@pytest.mark.parametrize(
    "rows",
    [
        "0, 97, 79000, 81559\n1, 95, 78000, 81559\n",
        "79000, 2559\n",
        "2026/12/03 10:00:00.123, 0, NVIDIA A100-SXM4-80GB, 12, [N/A], 81559\n",
        "00000000:07:00.0, GPU-1a2b3c4d-0000-1111-2222-333344445555, 97\n",
    ],
)
def test_numbers_without_names_and_units_are_not_judged_and_it_is_said(
    tmp_path: Path, rows: str
) -> None:
    file = tmp_path / "smi.csv"
    file.write_text(rows, "utf-8")

    found = triage_paths([file])

    assert not found.incidents
    assert found.sources[0].format == "nvidia-smi"
    assert "neither names nor units" in str(found.sources[0].problem)


@pytest.mark.parametrize(
    "rows",
    ["1,2\n3,4\n", "0, 97\nINFO 12-01 10:00:00 [x.py:1] fine\n", "12\n13\n", "0, 97, busy\n"],
)
def test_other_numbers_are_no_listing(rows: str) -> None:
    assert dialect(rows) is None
