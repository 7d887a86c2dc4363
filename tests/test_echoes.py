"""Commands that a log echoes: read within bounds, written so that a shell reads the same words."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_triage.derived import NAMES, derived
from vllm_triage.echo_reader import EchoReader
from vllm_triage.echoes import MAX_TEXT, parse, shell

PIECES = st.sampled_from(
    ["vllm serve ", "org/model ", "--port ", "x=' ", "A='a b' ", '"', "'", "\\", "$(", "`", "; rm ", "docker run ", "-e ",
     "vllm/vllm-openai:v0.9.2 ", "=", "--gpus ", "device=0,1 ", "args:", "- ", "command: ", "[", "]", " ", "\t", "$X ", "é"]
)  # fmt: skip
ROW = st.lists(PIECES, max_size=12).map("".join)


@given(st.lists(ROW, max_size=8))
def test_no_row_breaks_the_reader(rows: list[str]) -> None:
    reader = EchoReader()
    for row in rows:
        echo = reader.feed(row)
        if echo is not None:
            assert 0 < echo.first <= len(echo.words)
            echo.flags()
            echo.visible_gpus()


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6))
def test_a_shell_reads_back_the_words(words: list[str]) -> None:
    assert shlex.split(shell(["vllm", *words])) == ["vllm", *words]


@given(ROW)
def test_a_command_ends_where_the_shell_starts_another(row: str) -> None:
    echo = parse(f"$ vllm serve org/model --port 1; {row}")

    assert echo is None or echo.words == ("vllm", "serve", "org/model", "--port", "1")


def test_hostile_rows_are_read_to_their_bound() -> None:
    for piece in ("x=' ", "x=a ", "$ ", "env a=b ", "sudo -a ", "a@b:", "'", "--a "):
        parse(piece * 20_000)
        echo = parse("$ vllm serve org/model " + piece * 20_000)

        assert echo is None or sum(map(len, echo.words)) <= MAX_TEXT


@given(
    st.dictionaries(
        st.sampled_from(["argument", "value", "choices", "detail", "model", "path", "pci", "signal", "module"]),
        st.text(max_size=20) | st.sampled_from(["--task embed", "unrecognized", "--x=", "-9", "9", "/m", "--", "-"]),
    )
)  # fmt: skip
def test_derived_values_are_named_and_not_empty(known: dict[str, str]) -> None:
    found = derived(known, None)

    assert set(found) <= set(NAMES)
    assert all(found.values())


def test_a_comment_is_no_part_of_a_command() -> None:
    echo = parse("$ vllm serve org/model --port 1 # the old port")
    inside = parse("$ vllm serve org/model#a --port 1")

    assert echo is not None
    assert echo.words == ("vllm", "serve", "org/model", "--port", "1")
    assert inside is not None
    assert inside.words == ("vllm", "serve", "org/model#a", "--port", "1")
    assert parse("$ vllm serve org/model --x '#a' --port 1") is None


def test_a_command_may_be_kept_from_hanging_up_behind_its_variables() -> None:
    echo = parse("$ CUDA_VISIBLE_DEVICES=0,1 nohup vllm serve org/m -tp 2 > out.log 2>&1 &")

    assert echo is not None
    assert (echo.model, echo.visible_gpus()) == ("org/m", 2)
    assert echo.words[echo.first :] == ("org/m", "-tp", "2")


def test_a_value_before_a_redirection_stays() -> None:
    for end in (
        "> out.log",
        ">out.log",
        ">> out.log 2>&1",
        "2>&1 | tee log",
        "2> err.log",
        "&> all.log",
        "1>&2",
        "| cat",
        "< in",
    ):
        echo = parse(f"$ vllm serve org/m -tp 2 {end}")

        assert echo is not None, end
        assert echo.words[echo.first :] == ("org/m", "-tp", "2"), end


def last_echo(text: str) -> str | None:
    """The last command that a text shows, as a shell takes it."""
    reader = EchoReader()
    found = [echo for row in text.splitlines() if (echo := reader.feed(row)) is not None]
    return shell(found[-1].words) if found else None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ExecStart=/opt/bin/vllm serve org/m --port 1", "/opt/bin/vllm serve org/m --port 1"),
        ("(base) me@host:~$ conda run -n x --no-capture-output vllm serve org/m --port 1", "conda run -n x --no-capture-output vllm serve org/m --port 1"),
        ("[root@node1 ~]# vllm serve org/m --port 1 | tee log", "vllm serve org/m --port 1"),
        ("+ srun --gres=gpu:4 bash -c 'vllm serve org/m --port 1 2>&1 | tee log'", "vllm serve org/m --port 1"),
        ("$ tmux new -d -s v 'vllm serve org/m --port 1'", "vllm serve org/m --port 1"),
        ('$ docker exec -it c bash -c "vllm serve org/m --port 1 && echo done"', "vllm serve org/m --port 1"),
        ("$ kubectl exec -it llm-0 -- vllm serve org/m --port 1", "kubectl exec -it llm-0 -- vllm serve org/m --port 1"),
        ("$ ray job submit -- vllm serve org/m -tp 8", "ray job submit -- vllm serve org/m -tp 8"),
        ("$ singularity exec --nv x.sif vllm serve org/m --port 1", "singularity exec --nv x.sif vllm serve org/m --port 1"),
        ('$ vllm serve org/m --port ${PORT:-8000} "$@"', 'vllm serve org/m --port "${PORT:-8000}" "$@"'),
        ("    command: --model org/m --port 1", "vllm serve org/m --port 1"),
        ("    command: >\n      --model org/m\n      --served-model-name 'my m'\n    ports:\n      --port 2", "vllm serve org/m --served-model-name 'my m'"),
        ("    command: |-\n      vllm serve org/m \\\n        --port 1\n    restart: always", "vllm serve org/m --port 1"),
        ("args:\n- |\n  export A=1\n  vllm serve org/m \\\n    --port 1\n", "vllm serve org/m --port 1"),
    ],
)  # fmt: skip
def test_a_command_is_found_in_what_runs_it(text: str, expected: str) -> None:
    assert last_echo(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "$ docker images are used with vllm serve here",
        "$ bash -c 'echo vllm serve is a command'",
        "    command: --model-id org/m --port 1",
        "    command: >\n    vllm serve org/m --port 1 is what to run",
        "srun: error: task 0 of vllm serve exited",
    ],
)
def test_what_starts_no_server_is_no_command(text: str) -> None:
    assert last_echo(text) is None
