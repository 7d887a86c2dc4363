"""Environments of nodes, their interfaces, and the manifests that set them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage.artefacts import environment, manifests
from vllm_triage.artefacts.environment_checks import selected
from vllm_triage.artefacts.environment_joins import away_from, joined
from vllm_triage.artefacts.environment_nodes import Interface, stem
from vllm_triage.artefacts.formats import format_of
from vllm_triage.artefacts.observations import Observation, line
from vllm_triage.contract import validated
from vllm_triage.model import Report
from vllm_triage.pipeline import triage_paths
from vllm_triage.reports import markdown, text
from vllm_triage.run import Run
from vllm_triage.tables import table

LISTING = """lo               UNKNOWN        127.0.0.1/8 ::1/128
eth0             UP             10.0.0.1/24 fe80::1/64
ib0              DOWN
docker0          UP             172.17.0.1/16
"""
SERVED = """INFO 12-01 06:17:30 [api_server.py:1] vLLM API server version 0.11.0
INFO:     Application startup complete.
INFO:     127.0.0.1:50000 - "POST /v1/completions HTTP/1.1" 200 OK
"""


def env(host: str | None = None, **variables: object) -> str:
    named = {"HOSTNAME": host} if host else {}
    return "".join(f"{name}={value}\n" for name, value in {**named, **variables}.items())


def rank(host: str, number: object, **variables: object) -> str:
    common = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": 29500, "WORLD_SIZE": 2, "RANK": number}
    return env(host, **{**common, **variables})


def report(folder: Path, *contents: str, **named: str) -> Report:
    for name, content in {**{f"f{i}": one for i, one in enumerate(contents)}, **named}.items():
        (folder / name).write_text(content, "utf-8")
    return triage_paths(sorted(folder.iterdir()))


def faults(found: Report) -> list[str | None]:
    """What is said of the nodes; empty when nothing is."""
    return [
        getattr(one.facts, "environment_fault", None) or str(getattr(one.facts, "argument", None))
        for one in found.incidents
    ]


def observations(content: str, reader: object = environment) -> tuple[Observation, ...]:
    rows = [line("f", number, one) for number, one in enumerate(content.split("\n"), 1)]
    return reader.read(rows).observations  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    "content",
    [
        "PATH=/usr/bin\nVLLM_USE_V1=1\n",
        "VLLM_USE_V1=1\n",
        "# of the first node\nexport NCCL_DEBUG=INFO\n\nexport OLDPWD\n",
        'declare -x OLDPWD\ndeclare -x NOTE="one\ntwo"\ndeclare -x RANK="0"\n',
        "BASH_FUNC_which%%=() {  ( alias;\n eval ${which_declare} ) | /usr/bin/which\n}\nRANK=0\n",
        "root@node0:/vllm-workspace# env | grep NCCL\nNCCL_DEBUG=INFO\nroot@node0:/# ip -br addr\n"
        + LISTING,
        LISTING,
        "2: eth0@if5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 qdisc noqueue state UP\n    inet 10.0.0.1/24\n",
        "eth0      Link encap:Ethernet  HWaddr 00:00:5e:00:53:01\n          inet addr:10.0.0.1  Bcast:10.0.0.255\n",
        "CERT=-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\nRANK=0\n",
        "PATH=/usr/bin\0RANK=0\0HOME=/root\0",
    ],
)
def test_an_environment_is_told_by_its_lines(content: str) -> None:
    found = format_of(content)

    assert found is not None
    assert found.name == "environment"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "PATH=/usr/bin\nHOME=/root\n",
        "VLLM_USE_V1=1\nINFO 12-01 06:17:30 [api_server.py:1] vLLM API server version 0.11.0\n",
        "RANK=0\nexec /usr/bin/vllm: exec format error\n",
        "RANK=0\n+ vllm serve facebook/opt-125m\n",
        "export RANK=0\nvllm serve facebook/opt-125m\n",
        LISTING + "RuntimeError: Distributed init failed\n",
        "time=2026-12-01T06:17:30Z level=info msg=started\n",
        "RANK=0\nTraceback (most recent call last):\n",
        "level=error VLLM_USE_V1=1\n",
    ],
)
def test_a_log_that_begins_like_an_environment_stays_a_log(content: str) -> None:
    assert format_of(content) is None


@pytest.mark.parametrize(
    "content",
    [
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  x: y\n",
        "Name: vllm-0\nContainers:\n  vllm:\n",
        '{"apiVersion": "v1", "kind": "Event"}\n',
        '[{"Id": "0f3c", "State": {"OOMKilled": true}}]\n',
    ],
)
def test_what_starts_no_container_is_no_manifest(content: str) -> None:
    assert format_of(content) is None


WRONG = {
    "address": ([rank("a", 0), rank("b", 1, MASTER_ADDR="10.0.0.9")], "MASTER_ADDR is 10.0.0.1 on a, 10.0.0.9 on b"),
    "port": ([rank("a", 0), rank("b", 1, MASTER_PORT=29501)], "MASTER_PORT is 29500 on a, 29501 on b"),
    "size": ([rank("a", 0, WORLD_SIZE=3), rank("b", 1), rank("c", 2, WORLD_SIZE=3)], "WORLD_SIZE is 3 on a, c, 2 on b"),
    "name": ([rank("a", 0, MASTER_ADDR="a"), rank("b", 1)], "MASTER_ADDR is a on a, 10.0.0.1 on b"),
    "itself": ([rank("a", 0, MASTER_ADDR="127.0.0.1"), rank("b", 1, MASTER_ADDR="127.0.0.1")], "MASTER_ADDR is 127.0.0.1 on a, b, so that each looks for the others on itself"),
    "repeated": ([rank("a", 0), rank("b", 0)], "RANK is 0 on a and on b"),
    "from one": ([rank("a", 1), rank("b", 2)], "RANK is 2 on b, but with WORLD_SIZE=2 it goes from 0 to 1"),
    "node rank": ([env("a", NNODES=2, NODE_RANK=0), env("b", NNODES=2, NODE_RANK=2)], "NODE_RANK is 2 on b, but with NNODES=2 it goes from 0 to 1"),
    "missing": ([rank("a", 0), env("b", MASTER_PORT=29500, WORLD_SIZE=2, RANK=1)], "MASTER_ADDR is set on a and not on b"),
    "own address": ([env("a", VLLM_HOST_IP="10.0.0.1"), env("b", VLLM_HOST_IP="10.0.0.1")], "VLLM_HOST_IP is 10.0.0.1 on a and on b; it is each node's own address"),
    "loopback": ([env("a", VLLM_HOST_IP="10.0.0.1"), env("b", VLLM_HOST_IP="127.0.0.1")], "VLLM_HOST_IP is 127.0.0.1 on b, where no other node can reach it"),
    "not its own": ([env("a", VLLM_HOST_IP="10.0.0.5") + LISTING], "VLLM_HOST_IP is 10.0.0.5 on a, which has no such address"),
    "no interface": ([env("a", NCCL_SOCKET_IFNAME="ens3") + LISTING], "NCCL_SOCKET_IFNAME is ens3 on a, which has lo, eth0, ib0, docker0"),
    "no prefix": ([env("a", NCCL_SOCKET_IFNAME="=eth") + LISTING], "NCCL_SOCKET_IFNAME is =eth on a, which has lo, eth0, ib0, docker0"),
    "of Gloo": ([env("a", GLOO_SOCKET_IFNAME="eth") + LISTING], "GLOO_SOCKET_IFNAME is eth on a, which has lo, eth0, ib0, docker0"),
    "down": ([env("a", NCCL_SOCKET_IFNAME="ib") + LISTING], "NCCL_SOCKET_IFNAME is ib on a, where ib0 is down"),
    "local": ([env("a", NCCL_SOCKET_IFNAME="lo"), env("b", NCCL_SOCKET_IFNAME="lo")], "NCCL_SOCKET_IFNAME is lo on a, an interface that reaches no other node; NCCL_SOCKET_IFNAME is lo on b, an interface that reaches no other node"),
    "transport": ([rank("a", 0, NCCL_IB_DISABLE=1), rank("b", 1, NCCL_IB_DISABLE=0)], "NCCL_IB_DISABLE is 1 on a, and 0 on b"),
    "several": ([rank("a", 0), rank("b", 0, MASTER_PORT=1)], "MASTER_PORT is 29500 on a, 1 on b; RANK is 0 on a and on b"),
}  # fmt: skip


@pytest.mark.parametrize(("contents", "said"), WRONG.values(), ids=WRONG)
def test_what_does_not_go_together_is_told(tmp_path: Path, contents: list[str], said: str) -> None:
    found = report(tmp_path, *contents)

    assert faults(found) == [said]
    assert [one.kind.value for one in found.incidents] == ["distributed.init_failed"]


RIGHT = {
    "two nodes": [rank("a", 0), rank("b", 1)],
    "the first looks for itself": [rank("a", 0, WORLD_SIZE=1), rank("b", 0, WORLD_SIZE=1, MASTER_ADDR="10.0.0.9")],
    "two processes of one node": [rank("a", 0), rank("a", 1)],
    "the same file twice": [rank("a", 0), rank("a", 0)],
    "one node alone": [rank("a", 0)],
    "another program's": [rank("a", 0), env("proxy", PATH="/usr/bin", VLLM_LOGGING_LEVEL="INFO")],
    "interfaces named otherwise": [rank("a", 0, NCCL_SOCKET_IFNAME="eth0"), rank("b", 1, NCCL_SOCKET_IFNAME="ens1")],
    "a prefix": [env("a", NCCL_SOCKET_IFNAME="eth,ens") + LISTING],
    "all but some": [env("a", NCCL_SOCKET_IFNAME="^docker,lo") + LISTING],
    "one of them up": [env("a", NCCL_SOCKET_IFNAME="ib0,eth0") + LISTING],
    "loopback on one node": [env("a", NCCL_SOCKET_IFNAME="lo") + LISTING],
    "its own address": [env("a", VLLM_HOST_IP="10.0.0.1") + LISTING],
    "own addresses": [env("a", VLLM_HOST_IP="10.0.0.1"), env("b", VLLM_HOST_IP="10.0.0.2")],
    "not set is 0": [rank("a", 0, NCCL_IB_DISABLE=0), rank("b", 1)],
    "devices of each": [rank("a", 0, NCCL_IB_HCA="mlx5_0"), rank("b", 1, NCCL_IB_HCA="mlx5_1")],
}  # fmt: skip


@pytest.mark.parametrize("contents", RIGHT.values(), ids=RIGHT)
def test_what_goes_together_is_no_incident(tmp_path: Path, contents: list[str]) -> None:
    assert report(tmp_path, *contents).incidents == ()


def test_a_server_that_answered_has_found_its_nodes(tmp_path: Path) -> None:
    found = report(tmp_path, rank("a", 0), rank("b", 0), **{"server.log": SERVED})

    assert found.incidents == ()


def test_the_table_shows_the_nodes_beside_each_other(tmp_path: Path) -> None:
    found = report(tmp_path, rank("a", 0), rank("b", 1, MASTER_PORT=29501))

    (incident,) = found.incidents
    assert incident.table == (
        ("node", "MASTER_PORT", "MASTER_ADDR", "WORLD_SIZE", "RANK"),
        ("a", "29500", "10.0.0.1", "2", "0"),
        ("b", "29501", "10.0.0.1", "2", "1"),
    )
    assert "  node  MASTER_PORT  MASTER_ADDR  WORLD_SIZE  RANK\n  a     29500" in text.render(
        found
    )
    assert "\n| a | 29500 | 10.0.0.1 | 2 | 0 |\n" in markdown.render(found)
    assert json.loads(validated(found).model_dump_json())["incidents"][0]["table"][2][1] == "29501"


def test_a_table_of_many_nodes_keeps_the_one_that_differs(tmp_path: Path) -> None:
    nodes = [rank(f"n{one:02}", one, WORLD_SIZE=40, MASTER_PORT=1 if one == 33 else 2) for one in range(40)]  # fmt: skip
    (incident,) = report(tmp_path, *nodes).incidents

    assert len(incident.table) == 17
    assert ("n33", "1") in [row[:2] for row in incident.table]


def test_a_log_and_the_environments_tell_one_incident(tmp_path: Path) -> None:
    log = "RuntimeError: Distributed init failed\n"
    found = report(tmp_path, rank("a", 0), rank("b", 0), **{"server.log": log})

    (incident,) = found.incidents
    assert incident.kind.value == "distributed.init_failed"
    assert incident.table[2][:2] == ("b", "0")
    assert faults(found) == ["RANK is 0 on a and on b"]


def test_nodes_without_a_name_are_called_as_their_files(tmp_path: Path) -> None:
    found = report(tmp_path, **{"node0-env.txt": rank("", 0), "node1-env.txt": rank("", 0)})

    assert faults(found) == ["RANK is 0 on node0 and on node1"]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("node0-env.txt", "node0"),
        ("logs/node1/env", "node1"),
        ("10.0.0.5.environ", "10-0-0-5"),
        ("env.txt", "env.txt"),
    ],
)
def test_a_file_name_tells_the_node(name: str, wanted: str) -> None:
    assert stem(name) == wanted


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("NCCL_SOCKET_IFNAME", "eth", ["eth0", "eth1"]),
        ("NCCL_SOCKET_IFNAME", "=eth0", ["eth0"]),
        ("NCCL_SOCKET_IFNAME", "=eth", []),
        ("NCCL_SOCKET_IFNAME", "^eth,lo", ["ib0"]),
        ("NCCL_SOCKET_IFNAME", "^=eth0", ["eth1", "ib0", "lo"]),
        ("NCCL_SOCKET_IFNAME", "ib0:29500", ["ib0"]),
        ("GLOO_SOCKET_IFNAME", "eth0,ib0", ["eth0", "ib0"]),
        ("TP_SOCKET_IFNAME", "eth", []),
    ],
)
def test_interfaces_are_chosen_as_the_library_does(
    variable: str, value: str, wanted: list[str]
) -> None:
    own = [Interface(one, True, (), line("f", 1, one)) for one in ("eth0", "eth1", "ib0", "lo")]

    assert [one.name for one in selected(variable, value, own)] == wanted


@pytest.mark.parametrize(
    ("release", "wanted"),
    [
        ("0.14.1", None),
        ("0.15.0", None),
        ("0.15.1", "vLLM has it from 0.4.3 to 0.14.1"),
        ("0.3.3", "vLLM has it from 0.4.3 to 0.14.1"),
        ("0.4.0", None),
        (None, None),
    ],
)
def test_a_release_lacks_what_those_around_it_lack(
    release: str | None, wanted: str | None
) -> None:
    assert (
        away_from(table("environment")["variables"]["VLLM_ATTENTION_BACKEND"], release) == wanted
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("VLLM_WORKER_MULTIPROC_METHODS", ["VLLM_WORKER_MULTIPROC_METHODS"]),
        ("VLLM_LOGING_LEVEL", ["VLLM_LOGING_LEVEL"]),
        ("VLLM_LOGGING_LEVEL", []),
        ("VLLM_MODEL_NAME", []),
        ("VLLM_SERVICE_PORT_HTTP", []),
        ("VLLM_ASCEND_ENABLE_NZ", []),
        ("MY_VLLM_LOGING_LEVEL", []),
    ],
)
def test_only_a_name_that_is_nearly_one_is_misspelt(
    tmp_path: Path, name: str, wanted: list[str]
) -> None:
    found = report(tmp_path, env("a", **{name: "1"}))

    assert faults(found) == wanted
    assert all(one.severity.value == "notice" for one in found.incidents)


def test_a_misspelt_name_never_hides_a_port_that_is_an_address(tmp_path: Path) -> None:
    port = "tcp://10.43.217.94:8000"
    found = report(tmp_path, env("a", VLLM_LOGING_LEVEL="DEBUG", VLLM_PORT=port))

    assert faults(found) == ["VLLM_PORT", "VLLM_LOGING_LEVEL"]
    assert [one.severity.value for one in found.incidents] == ["fatal", "notice"]
    assert getattr(found.incidents[0].facts, "meant", None) is None
    assert len({one.id for one in found.incidents}) == 2


def test_each_misspelt_name_is_told(tmp_path: Path) -> None:
    found = report(tmp_path, env("a", VLLM_LOGING_LEVEL="1", VLLM_HOST_IPP="10.0.0.1"))

    assert faults(found) == ["VLLM_LOGING_LEVEL", "VLLM_HOST_IPP"]


@pytest.mark.parametrize(
    ("size", "devices", "is_told"),
    [
        (4, "0,1", True),
        (4, "0,1,2,3", False),
        (2, "GPU-1a2b3c4d-0000,GPU-1a2b3c4d-0001", False),
        (3, "GPU-1a2b3c4d-0000,GPU-1a2b3c4d-0001", True),
        (4, "all", False),
        (4, "", False),
    ],
)
def test_the_visible_gpus_are_held_against_the_parallel_size(
    tmp_path: Path, size: int, devices: str, is_told: bool
) -> None:
    log = f"INFO 12-01 06:17:30 [utils.py:233] non-default args: {{'tensor_parallel_size': {size}}}\n"
    found = report(tmp_path, env("a", CUDA_VISIBLE_DEVICES=devices), **{"server.log": log})

    assert [one.kind.value for one in found.incidents] == ["distributed.parallel_config"] * is_told


def test_no_secret_of_an_environment_leaves(tmp_path: Path) -> None:
    secret = "zq81notasecretbutlooksit"
    names = ("HF_TOKEN", "VLLM_API_KEY", "VLLM_API_KEYS", "RAY_PASSWORD", "NCCL_AUTH", "DB_URL")
    content = rank("b", 0, **dict.fromkeys(names, secret))
    found = report(tmp_path, rank("a", 0), content)

    assert found.incidents
    assert secret not in validated(found).model_dump_json()
    assert secret not in str(observations(content))


POD_YAML = """apiVersion: v1
items:
- apiVersion: v1
  kind: Pod
  metadata:
    annotations:
      name: not-this
    labels:
      name: nor-this
    name: vllm-0
    namespace: llm
  spec:
    initContainers:
    - name: wait
      env:
      - name: RANK
        value: "7"
    containers:
    - args:
      - --model
      - Qwen/Qwen2.5-7B-Instruct
      - --tensor-parallel-size
      - "2"
      env:
      - name: RANK
        valueFrom:
          fieldRef:
            fieldPath: metadata.labels['apps.kubernetes.io/pod-index']
      # the head
      - name: MASTER_ADDR
        value: 'vllm-0.vllm'  # a service
      - name: SCRIPT
        value: |
          export RANK=3
      - {name: MASTER_PORT, value: "29500"}
      image: vllm/vllm-openai:v0.11.0
      name: vllm
    - name: proxy
      image: envoy
kind: List
"""


def test_a_pod_is_read_as_kubectl_prints_it() -> None:
    started, node = observations(POD_YAML, manifests)

    assert started.values == {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "--tensor_parallel_size": "2",
    }
    assert node.values == {
        "RANK": "from a reference",
        "MASTER_ADDR": "vllm-0.vllm",
        "MASTER_PORT": "29500",
        "node": "vllm-0/vllm",
        "group": "",
        "sort": "manifest",
        "whole": "no",
    }
    assert {name: one.number for name, one in node.lines.items()} == {
        "RANK": 25,
        "MASTER_ADDR": 30,
        "MASTER_PORT": 35,
    }


def test_the_log_takes_its_containers_arguments(tmp_path: Path) -> None:
    log = "ValueError: Distributed init failed\n"
    found = report(tmp_path, **{"pod.yaml": POD_YAML, "server.log": log})

    (run,) = [one for one in found.runs if str(one.source).endswith("server.log")]
    assert run.model == "Qwen/Qwen2.5-7B-Instruct"
    assert run.arguments["tensor_parallel_size"] == 2


def test_a_log_behind_very_many_variables_is_read_too(tmp_path: Path) -> None:
    services = env(**{f"VLLM_{one:05}_SERVICE_HOST": "10.0.0.1" for one in range(2000)})
    crash = "RuntimeError: Distributed init failed\n"

    found = report(tmp_path, services + crash)

    assert [one.kind.value for one in found.incidents] == ["distributed.init_failed"]
    assert found.incidents[0].evidence[0].line == 2001


def test_the_variables_name_releases_that_were_read() -> None:
    content = table("environment")
    spans = [span.split(" - ") for span in content["variables"].values()]

    assert len(spans) > 400
    assert {one for span in spans for one in span} <= set(content["releases"])
    assert all(len(span) <= 2 for span in spans)


_VALUES = st.sampled_from(
    ["0", "1", "2", "-1", "", "10.0.0.1", "10.0.0.2", "localhost", "::1", "node0", "lo", "^", "=", ",", "^=eth0,",
     "eth0:1", "9" * 150, "²", "tcp://10.0.0.1:8000", "GPU-1", "0,,1", "nan"]
)  # fmt: skip
_NAMES = st.sampled_from(
    ["HOSTNAME", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "NODE_RANK", "NNODES", "VLLM_HOST_IP", "VLLM_DP_RANK",
     "VLLM_DP_SIZE", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_NET", "VLLM_PORT", "VLLM_X",
     "CUDA_VISIBLE_DEVICES", "VLLM_USE_V1"]
)  # fmt: skip


@given(st.lists(st.tuples(st.dictionaries(_NAMES, _VALUES), st.booleans()), max_size=4))
def test_no_values_break_the_checks(nodes: list[tuple[dict[str, str], bool]]) -> None:
    contents = [env(**own) + (LISTING if has_listing else "") for own, has_listing in nodes]
    found = [one for content in contents for one in observations(content)]
    run = Run("f", 1)
    run.arguments["tensor_parallel_size"] = 8

    for one in joined(found, run):
        assert one.lines["places"]
        assert len({len(row) for row in one.table}) <= 1


@given(st.text(max_size=400))
def test_no_text_breaks_a_reader(content: str) -> None:
    observations(content)
    observations(content, manifests)
    format_of(content)


_KEY = st.sampled_from(
    ["Config", "HostConfig", "State", "Env", "Args", "Path", "Name", "items", "metadata", "name", "spec", "containers",
     "env", "value", "command", "args", "kind"]
)  # fmt: skip
_LEAF = st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=12), st.just("RANK=0"))
_JSON = st.recursive(
    _LEAF,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(_KEY, inside, max_size=5),
    max_leaves=25,
)


@given(_JSON)
def test_no_json_breaks_the_reader_of_manifests(data: object) -> None:
    observations(json.dumps([data]), manifests)
    observations(json.dumps({"spec": data}, indent=1), manifests)


def test_json_that_is_too_deep_or_cut_is_a_problem() -> None:
    rows = [line("f", 1, "[" * 100_000)]

    assert manifests.read(rows).problem == "it is no whole JSON"
    assert manifests.read([line("f", 1, '[{"HostConfig": {')]).problem == "it is no whole JSON"


@given(
    st.lists(
        st.sampled_from(
            ["spec:", "  containers:", "  - name: a", "    env:", "    - name: RANK", "      value: 0", "      valueFrom:",
             "    args: [", "    - x", "metadata:", "  name: p", "---", "", "# c", "    command: [\"a\", 1]", "- - - a: b"]
        ),
        max_size=30,
    )
)  # fmt: skip
def test_no_yaml_breaks_the_reader_of_manifests(rows: list[str]) -> None:
    observations("\n".join(rows), manifests)


CUT = [
    ("MASTER_PORT=295", "MASTER_PORT=29500"),
    ("MASTER_ADDR=10.0.0", "MASTER_ADDR=10.0.0.1"),
    ("MASTER_ADDR='10.0.0.9", "MASTER_ADDR='10.0.0.91'"),
    ("MASTER_PO", "MASTER_PORT=29500"),
    ("RANK=1", "RANK=12"),
]


@pytest.mark.parametrize(("last", "whole"), CUT)
def test_a_value_that_may_be_cut_off_is_no_difference(
    tmp_path: Path, last: str, whole: str
) -> None:
    name, _, value = whole.partition("=")
    common = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "16", "RANK": "1"}
    common[name] = value.strip("'") if name != "RANK" else "1"
    theirs = {**common, "RANK": "2"} if name != "RANK" else common
    mine = {key: text for key, text in theirs.items() if key != name}
    whole_rows = env("a", **common)

    found = report(tmp_path, whole_rows, env("b", **mine) + last)

    assert not found.incidents
    problems = [one.problem for one in found.sources if one.problem]
    assert [name in one for one in problems] == ([True] if "=" in last else [])


@pytest.mark.parametrize("last", ["MASTER_PORT=29501", "MASTER_PORT=29600"])
def test_a_value_that_no_cut_makes_differs_without_the_end_of_its_line(
    tmp_path: Path, last: str
) -> None:
    common = {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "2"}

    found = report(
        tmp_path,
        env("a", RANK="0", MASTER_PORT="29500", **common),
        env("b", RANK="1", **common) + last,
    )

    assert faults(found) == ["MASTER_PORT is 29500 on a, " + last.partition("=")[2] + " on b"]


def test_a_listing_that_is_cut_off_lacks_no_interface(tmp_path: Path) -> None:
    cut = LISTING[: LISTING.index("10.0.0.1") + 3]
    wanted = env("a", NCCL_SOCKET_IFNAME="ib0", VLLM_HOST_IP="10.0.0.1")

    assert not report(tmp_path, **{"a-env.txt": wanted, "a-ip.txt": cut}).incidents
    assert report(
        tmp_path, **{"a-env.txt": wanted, "a-ip.txt": LISTING.replace("ib0 ", "ib7 ")}
    ).incidents


@pytest.mark.parametrize(
    ("last", "is_told"),
    [("            value: '295", False), ("            value: '29501'", True), ("", False)],
)
def test_a_manifest_that_is_cut_off_shows_no_difference(
    tmp_path: Path, last: str, is_told: bool
) -> None:
    pod = """apiVersion: v1
kind: Pod
metadata:
  name: vllm-NUMBER
spec:
  containers:
      - name: vllm
        env:
          - name: RANK
            value: 'NUMBER'
          - name: WORLD_SIZE
            value: '2'
          - name: MASTER_PORT
"""
    both = (
        pod.replace("NUMBER", "0")
        + "            value: '29500'\n---\n"
        + pod.replace("NUMBER", "1")
    )

    assert bool(report(tmp_path, pods=(both + last).rstrip("\n")).incidents) is is_told


@pytest.mark.parametrize("is_last", [True, False])
def test_the_environments_of_several_nodes_may_stand_in_one_file(
    tmp_path: Path, is_last: bool
) -> None:
    one = {"PATH": "/bin", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": 29500, "WORLD_SIZE": 2}
    first = env(None, **one, HOSTNAME="a", RANK=0)
    second = env(None, **one, RANK=1, HOSTNAME="b") if is_last else env("b", **one, RANK=1)

    assert not report(tmp_path, first + second).incidents
    found = report(tmp_path, first + second.replace("29500", "29501"))
    assert faults(found) == ["MASTER_PORT is 29500 on a, 29501 on b"]


def test_prompts_tell_whose_environment_follows(tmp_path: Path) -> None:
    one = {"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": 2}
    text = f"root@a:~# env\n{env(None, **one, RANK=0)}root@b:~# env\n{env(None, **one, RANK=0)}"

    assert faults(report(tmp_path, text)) == ["RANK is 0 on a and on b"]


def test_a_variable_that_one_file_sets_twice_is_no_second_node(tmp_path: Path) -> None:
    text = env("a", MASTER_ADDR="10.0.0.1", RANK=0, WORLD_SIZE=1) + env(None, RANK=1, WORLD_SIZE=2)

    assert not report(tmp_path, text).incidents
