"""Inputs made to do harm: Hypothesis strategies for small ones, generators for large ones."""

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterator
from functools import cache, partial

from backports import zstd  # type: ignore[import-not-found,unused-ignore]
from hypothesis import settings
from hypothesis import strategies as st

from tests.conftest import FIXTURES, fixtures
from tests.traffic import WRAPS

IS_DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
_FACTOR = 100
_ROWS = 24
_WINDOW = 4_000

STAMP = "12-01 06:17:30"
CONTROLS = (
    "\x1b[31m", "\x1b[0m", "\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1b]52;c;aGk=\x07", "\x1bP+q\x1b\\",
    "\x9b31m", "\x07", "\x08" * 4, "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u202e", "\u2066", "\u2069", "\u200f", "\ufeff", "\x00", "\x1b[", "\x1b]0;",
    "^[[1m", "#033[0m", "\\x1b[0m", "\\u001b[0m",
)  # fmt: skip
WORDS = (
    "Traceback (most recent call last):", '  File "/x/vllm/v1/engine/core.py", line 3, in run', "    raise ValueError(", "    ^^^^^^^",
    "ValueError: no", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
    "The above exception was the direct cause of the following exception:", "During handling of the above exception, another exception occurred:",
    "  + Exception Group Traceback (most recent call last):", "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)", "  +-+---------------- 1 ----------------",
    f"(EngineCore_DP0 pid=7) ERROR {STAMP} [core.py:1] EngineCore failed to start.", f"INFO {STAMP} [api_server.py:1] vLLM API server version 0.10.2",
    "INFO:     Application startup complete.", 'INFO:     1.2.3.4:5 - "POST /v1/completions HTTP/1.1" 200 OK', 'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 503 Service Unavailable',
    f"INFO {STAMP} [loggers.py:1] Engine 000: Avg prompt throughput: 1e999 tokens/s, Avg generation throughput: nan tokens/s, Running: {'9' * 400} reqs, Waiting: 1 reqs, GPU KV cache usage: 99.9%, Prefix cache hit rate: 0.0%",
    f"INFO {STAMP} [utils.py:1] non-default args: {{'model': 'a', 'max_model_len': {'9' * 5000}, 'port': 1e999}}", "vllm serve 'unfinished", "+ vllm serve a --port 99999999999999999999 --max-model-len -1",
    "Killed", "Segmentation fault (core dumped)", "node:1:2 [0] NCCL WARN Cuda failure 2 'out of memory'", "[rank0]: ", "============ Serving Benchmark Result ============",
    "Successful requests:                     1e400", "# HELP vllm:num_requests_running x", 'vllm:num_requests_running{model_name="a"} NaN', "vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 1e400",
    "__CURSOR=s=1", "MESSAGE", "MESSAGE=ERROR a", "_SYSTEMD_UNIT=vllm.service", "2026-12-01T06:17:30.1Z stderr P ", "2026-12-01T06:17:30.1Z stderr F x", "Loading safetensors checkpoint shards: 100%|##########| 2/2",
    "{" * 300, "[" * 3000, '{"a":' * 500, '{"log":' + '"' * 9, '{"message":"a","message":{"message":[]}}', '{"log":"x\\n","stream":1,"time":[]}', '{"level":' + "9" * 5000 + ',"msg":"x"}', "\\n" * 40, "&lt;" * 40, "%|" * 40,
    "Name: a", "State: Terminated", "Reason: OOMKilled", "$ nvidia-smi", "Xid (PCI:0000:01:00): 79", "CUDA_VISIBLE_DEVICES=" + "0," * 400,
)  # fmt: skip


def examples(count: int) -> settings:
    """So many examples, a hundred times as many in the deep profile."""
    return settings(max_examples=count * (_FACTOR if IS_DEEP else 1), deadline=None)


@cache
def windows() -> tuple[bytes, ...]:
    """Pieces of the fixtures, from shortly before the line that states the cause."""
    out = []
    for fixture in fixtures():
        rows = fixture.log.read_bytes().split(b"\n")
        out.append(b"\n".join(rows[max(0, (fixture.line or 1) - 10) :])[:_WINDOW])
    return tuple(out)


@cache
def artefacts() -> tuple[bytes, ...]:
    """What lies beside logs."""
    paths = sorted((FIXTURES / "artefacts").rglob("*"))
    return tuple(
        path.read_bytes()[:20_000]
        for path in paths
        if path.is_file() and path.name != "expected.toml"
    )


def mutated(data: bytes, draw: st.DrawFn) -> bytes:
    """Bytes flipped, cut out, written twice, put elsewhere; lines shuffled; controls put in."""
    out = bytearray(data)
    for _ in range(draw(st.integers(0, 6))):
        size = len(out)
        at = draw(st.integers(0, size))
        length = draw(st.sampled_from((1, 1, 2, 8, 40, 400)))
        match draw(st.integers(0, 5)):
            case 0:
                out[at : at + length] = draw(st.binary(min_size=1, max_size=min(length, 8)))
            case 1:
                del out[at : at + length]
            case 2:
                out[at:at] = out[at : at + length] * draw(st.integers(1, 3))
            case 3:
                to = draw(st.integers(0, size))
                out[to:to] = out[at : at + length]
            case 4:
                out[at:at] = draw(st.sampled_from(CONTROLS)).encode()
            case _:
                out[at:at] = draw(st.sampled_from(WORDS)).encode()
    if draw(st.integers(0, 4)) == 0:
        rows = bytes(out).split(b"\n")
        out = bytearray(b"\n".join(draw(st.permutations(rows[:_ROWS])) + rows[_ROWS:]))
    return bytes(out[: 2 * _WINDOW])


def wrapped(rows: list[str], draw: st.DrawFn) -> list[str]:
    """Envelopes around lines, one in another in any order, some lines without, times going backwards."""
    layers = draw(st.lists(st.sampled_from(sorted(WRAPS)), max_size=3))
    step = draw(st.sampled_from((1, -1, 0, 40_000)))
    out = []
    for number, row in enumerate(rows):
        text = row
        for layer in layers:
            text = WRAPS[layer](text, 50_000 + step * number)
        out.append(text if draw(st.integers(0, 9)) else row)
    return out


def encoded(rows: list[str], draw: st.DrawFn) -> bytes:
    """Lines that are not all of one encoding, nor of one line end."""
    names = draw(
        st.lists(
            st.sampled_from(("utf-8", "utf-8", "latin-1", "cp1252", "utf-16-le", "shift-jis")),
            min_size=1,
            max_size=3,
        )
    )
    end = draw(st.sampled_from((b"\n", b"\n", b"\r\n", b"\r", b"\n\n", b"\0\n")))
    return end.join(
        row.encode(names[number % len(names)], "replace") for number, row in enumerate(rows)
    )


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A log of any of the sorts."""
    sort = draw(st.integers(0, 5))
    if sort == 0:
        return draw(st.binary(max_size=2_000))
    if sort == 1:
        return mutated(draw(st.sampled_from(windows())), draw)
    if sort == 2:
        pieces = st.sampled_from(WORDS) | st.sampled_from(CONTROLS) | st.text(max_size=20)
        rows = draw(st.lists(st.lists(pieces, max_size=3).map("".join), max_size=_ROWS))
        return encoded(wrapped(rows, draw), draw)
    if sort == 3:
        # Several processes that speak at once, each cut off somewhere.
        texts = draw(st.lists(st.sampled_from(windows()), min_size=2, max_size=3))
        names = ("", "(Worker_TP1 pid=71) ", "[rank3]: ", "vllm-1  | ")
        streams = [
            [f"{names[index]}{row}" for row in text.decode("utf-8", "replace").split("\n")[:_ROWS]]
            for index, text in enumerate(texts)
        ]
        order = draw(st.lists(st.integers(0, len(streams) - 1), max_size=3 * _ROWS))
        return "\n".join(streams[index].pop(0) for index in order if streams[index]).encode()
    rows = draw(st.sampled_from(windows())).decode("utf-8", "replace").split("\n")[:_ROWS]
    data = encoded(wrapped(rows, draw), draw)
    return mutated(data, draw) if sort == 4 else data


@st.composite
def beside(draw: st.DrawFn) -> bytes:
    """A file of those that lie beside logs, changed."""
    return mutated(draw(st.sampled_from(artefacts())), draw)


PACKS: tuple[Callable[[bytes], bytes], ...] = (
    partial(gzip.compress, mtime=0),
    bz2.compress,
    lzma.compress,
    zstd.compress,
)


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """A packed log, also twice packed, cut off or damaged."""
    data = draw(st.sampled_from(windows()))
    for pack in draw(st.lists(st.sampled_from(PACKS), min_size=1, max_size=2)):
        data = pack(data)
    if draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    return mutated(data, draw) if draw(st.booleans()) else data


# Large ones, as lines without end.


def many_processes(count: int) -> Iterator[bytes]:
    """Each speaks once, and every third dies."""
    for number in range(count):
        yield b"(Worker_TP%d pid=%d) ERROR 12-01 06:17:30 [a.py:1] %b\n" % (
            number,
            number,
            (
                b"Traceback (most recent call last):",
                b'  File "/vllm/a.py", line 1, in f',
                b"ValueError: %d" % number,
            )[number % 3],
        )


def endless_traceback(count: int) -> Iterator[bytes]:
    """Frames that never come to an exception."""
    yield b"ERROR 12-01 06:17:30 [a.py:1] Traceback (most recent call last):\n"
    for number in range(count):
        yield b'ERROR 12-01 06:17:30 [a.py:1]   File "/vllm/%d.py", line %d, in f%d\n' % (
            number % 977,
            number,
            number,
        )


def endless_message(count: int) -> Iterator[bytes]:
    """A message that goes on and on."""
    yield b"ERROR 12-01 06:17:30 [a.py:1] CUDA error:\n"
    for number in range(count):
        yield b"  it goes on %d\n" % number


def partial_lines(count: int) -> Iterator[bytes]:
    """A container's line in pieces that never end, of many streams."""
    for number in range(count):
        yield b"2026-12-01T06:17:30.%dZ std%b P piece %d \n" % (
            number,
            (b"out", b"err")[number % 2],
            number,
        )


def json_bombs(count: int) -> Iterator[bytes]:
    """Records nested deep, of many keys, of huge numbers, of one key many times."""
    bombs = (
        b'{"message":' + b"[" * 2_000 + b"]" * 2_000 + b"}\n",
        b'{"message":"x",' + b",".join(b'"k%d":%d' % (one, one) for one in range(500)) + b"}\n",
        b'{"message":"x","level":' + b"9" * 6_000 + b"}\n",
        b"{" + b'"message":"ValueError: x",' * 300 + b'"a":1}\n',
        b'{"log":"' + b"\\\\n" * 3_000 + b'","stream":"stderr"}\n',
    )
    for number in range(count):
        yield bombs[number % len(bombs)]


def journal_without_end(count: int) -> Iterator[bytes]:
    """An entry of a journal that is never closed."""
    yield b"__CURSOR=a\nMESSAGE\n"
    for number in range(count):
        yield b"row %d\n" % number


def nested_json(depth: int) -> bytes:
    """JSON in JSON, each in the message of the one around it; the size doubles with each."""
    text = "ValueError: x"
    for _ in range(depth):
        text = json.dumps({"message": text})
    return text.encode()


STREAMS: dict[str, Callable[[int], Iterator[bytes]]] = {
    "many processes": many_processes,
    "endless traceback": endless_traceback,
    "endless message": endless_message,
    "partial lines": partial_lines,
    "json bombs": json_bombs,
    "journal without end": journal_without_end,
}
