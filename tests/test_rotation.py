"""The file of incidents is rotated by logrotate while the filter runs."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import shippers
from tests.shippers import TRIAGE, documented, lines_of, until

LOG = "ERROR 05-01 10:00:40 [core.py:515] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."


@pytest.mark.parametrize(
    "how", ["create 0644", "copytruncate", "nocreate"], ids=["create", "copytruncate", "nocreate"]
)
def test_each_incident_is_in_one_of_the_files(how: str, tmp_path: Path) -> None:
    logrotate = shippers.program("logrotate")
    config = documented("logrotate.conf", tmp_path, **{"create 0644": how})
    # logrotate reads no file that others may write.
    config.chmod(0o600)
    incidents, rotated = tmp_path / "vllm-incidents.ndjson", tmp_path / "vllm-incidents.ndjson.1"
    with subprocess.Popen(
        [TRIAGE, "filter", "--protocol", "json", "--incidents", incidents],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None

        def crash(pod: str) -> None:
            assert process.stdin is not None
            for row in (LOG, "INFO 05-01 10:00:41 [api_server.py:1] next"):
                record = {"message": row, "kubernetes": {"pod_name": pod}}
                process.stdin.write(json.dumps(record).encode() + b"\n")
            process.stdin.flush()

        crash("before")
        until(lambda: lines_of(incidents), "the first incident is there")
        subprocess.run(
            [logrotate, "--force", "--state", tmp_path / "state", config],
            check=True,
            capture_output=True,
        )
        first = [json.loads(line)["id"] for line in lines_of(rotated)]
        assert len(first) == 1
        assert "before" in first[0]
        assert lines_of(incidents) == []
        crash("after")
        until(lambda: lines_of(incidents), "the second incident is there")
        process.stdin.close()
        assert process.wait(shippers.WAIT_S) == 0

    assert "\0" not in incidents.read_text("utf-8")
    assert {json.loads(line)["id"] for line in lines_of(incidents)} == {
        one.replace("before", "after") for one in first
    }
    assert [json.loads(line)["id"] for line in lines_of(rotated)] == first
