"""Logs for measuring, of any length: the same seed gives the same bytes.

Starts, crashes and tracebacks are those of real runs in `fixtures/`, with their processes
and times made those of the log; colours are taken out.
"""

import json
import random
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import regex

CRASH = Path(__file__).parent.parent / "fixtures" / "engine" / "0_10_2-tp2-worker-killed-9.log"
"""vLLM 0.10.2 with two workers, started, serving, dead."""
_CRASH_BEGINS = b"WorkerProc hit an exception."
_STARTED = b"Application startup complete."
_SERVERS = 4
_WORKERS = 8
_STAMP = regex.compile(rb"\b12-\d\d \d\d:\d\d:\d\d\b")
_HEAD = regex.compile(rb"^\(Worker_TP0 pid=\d+\) ERROR \S+ \S+ \S+ ")
_VOCABULARY = """
    the a of and to in is that for it as with on be at by this not are from or have an but which all they one you were
    when their can more will would other some what time only do could new than into them these then two may first any
    like should now such over our even most me after also did many must through back years where much before right too
    means old good work three own write word children side feet car mile began idea fish mountain north once base hear
    horse cut sure watch colour face wood main enough plain girl usual young ready above ever red list though feel talk
    bird soon body dog family direct pose leave song measure door product black short numeral class wind question happen
    complete ship area half rock order fire south problem piece told knew pass since top whole king space heard best hour
    error exception failed memory timeout warning server connection python traceback killed model token cache retry queue
    kernel device driver thread process worker engine startup shutdown request response prompt answer translate summarise
"""
_WORDS = tuple(_VOCABULARY.split())
_ASKED = (
    "Why do I get RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "Explain: Traceback (most recent call last): File x.py, line 3, in f ValueError: bad",
    "What does NCCL error: unhandled system error mean",
    "Connection refused when I call my server, OSError: [Errno 111]",
)
_REQUESTS = (
    "POST /v1/completions",
    "POST /v1/chat/completions",
    "POST /v1/chat/completions",
    "POST /v1/embeddings",
)
_PROBES = ("GET /health", "GET /metrics")
_WARNINGS = (
    "[protocol.py:81] The following fields were present in the request but ignored: {'frequency'}",
    "[_logger.py:72] Pin memory is not supported on CPU.",
    "[sampling_params.py:311] temperature 0.001 is less than 0.01, which may cause numerical errors nan or inf in tensors. We have maxed it out to 0.01.",
)


def _when(second: int) -> str:
    return f"12-{1 + second // 86400 % 28:02} {second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"


@cache
def _real() -> tuple[bytes, bytes]:
    """A start until it serves, and a crash."""
    text = regex.sub(rb"\x1b\[[\d;]*m", b"", CRASH.read_bytes())
    rows = text.splitlines(keepends=True)
    started = next(number for number, row in enumerate(rows, 1) if _STARTED in row)
    dead = next(number for number, row in enumerate(rows) if _CRASH_BEGINS in row)
    return b"".join(rows[:started]), b"".join(rows[dead:])


def healthy(size: int, seed: int = 1) -> Iterator[bytes]:
    """A server that answers, in lines of about `size` bytes altogether.

    86 % access lines, the rest engine statistics, requests with their prompts, and warnings
    that mean no harm; four API servers, a hundred clients.
    """
    chance = random.Random(seed)
    yield from _real()[0].splitlines(keepends=True)
    size -= len(_real()[0])
    number = 0
    while size > 0:
        row = _serving(chance, number)
        number += 1
        size -= len(row)
        yield row


def _serving(chance: random.Random, number: int) -> bytes:
    head = f"(ApiServer_{number % _SERVERS} pid={12060 + number % _SERVERS}) "
    what = chance.random()
    if what < 0.86:
        client = chance.randrange(100)
        request = _REQUESTS[client % 4] if what < 0.84 else _PROBES[client % 2]
        port = 32768 + chance.randrange(28000)
        return f'{head}INFO:     10.1.{client // 8}.{client}:{port} - "{request} HTTP/1.1" 200 OK\n'.encode()
    stamp = _when(23400 + number // 40)
    if what < 0.91:
        return (
            f"{head}INFO {stamp} [loggers.py:123] Engine 000: Avg prompt throughput: {chance.randrange(90000) / 10} tokens/s, "
            f"Avg generation throughput: {chance.randrange(20000) / 10} tokens/s, Running: {chance.randrange(1, 60)} reqs, "
            f"Waiting: 0 reqs, GPU KV cache usage: {chance.randrange(10, 600) / 10}%, Prefix cache hit rate: {chance.randrange(900) / 10}%\n"
        ).encode()
    if what < 0.99:
        prompt = " ".join(chance.choices(_WORDS, k=chance.randrange(5, 120)))
        if chance.random() < 0.02:
            prompt = f"{chance.choice(_ASKED)}? {prompt}"
        return (
            f"{head}INFO {stamp} [logger.py:40] Received request chatcmpl-{chance.getrandbits(128):032x}: prompt: '{prompt}', "
            f"params: SamplingParams(n=1, presence_penalty=0.0, temperature={chance.randrange(20) / 10}, top_p=1.0, seed=None, stop=[], "
            f"ignore_eos=False, max_tokens={chance.randrange(1, 4000)}), prompt_token_ids: None, prompt_embeds shape: None, lora_request: None.\n"
        ).encode()
    return f"{head}WARNING {stamp} {chance.choice(_WARNINGS)}\n".encode()


def busy(size: int, seed: int = 1) -> Iterator[bytes]:
    """A healthy log with the crash of the same server at its end."""
    crash = _real()[1]
    stamp = b""
    for row in healthy(size - len(crash), seed):
        found = _STAMP.search(row)
        stamp = found[0] if found else stamp
        yield row
    yield from _STAMP.sub(stamp, crash).splitlines(keepends=True)


def dense(size: int, seed: int = 1) -> Iterator[bytes]:
    """A crash loop: after the first start every line belongs to a worker's traceback.

    The lines of eight workers interleave, each process prints chains that grow, and after
    each death there are new processes. All die of the same: no memory on their GPU.
    """
    chance = random.Random(seed)
    yield from _real()[0].splitlines(keepends=True)
    size -= len(_real()[0])
    life = 0
    while size > 0:
        first = 20_000 + chance.randrange(1_000_000)
        stamp = _when(23400 + life * 90)
        workers = [
            _dying(chance, f"(Worker_TP{rank} pid={first + rank}) ERROR {stamp} ", rank)
            for rank in range(_WORKERS)
        ]
        while workers and size > 0:
            place = chance.randrange(len(workers))
            row = next(workers[place], None)
            if row is None:
                del workers[place]
                continue
            size -= len(row)
            yield row
        life += 1


def _dying(chance: random.Random, prefix: str, rank: int) -> Iterator[bytes]:
    head = f"{prefix}[multiproc_executor.py:654] ".encode()
    for links in range(1, 4):
        yield head + b"WorkerProc hit an exception.\n"
        for link in range(links):
            if link:
                yield head + b"\n"
                yield (
                    head + b"During handling of the above exception, another exception occurred:\n"
                )
                yield head + b"\n"
            for row in _frames():
                yield head + row
            free = chance.randrange(100, 90000) / 100
            yield (
                head
                + f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {2 + rank}.00 GiB. GPU {rank} has a total capacity "
                f"of 79.15 GiB of which {free:.2f} MiB is free. Process {chance.randrange(9999)} has 3.38 GiB memory in use.\n".encode()
            )


@cache
def _frames() -> list[bytes]:
    """The first traceback of the worker that did not get killed, without its exception."""
    found: list[bytes] = []
    for row in _real()[1].splitlines(keepends=True)[1:]:
        text = _HEAD.sub(b"", row)
        if text.startswith(b"RuntimeError"):
            return found
        if text != row:
            found.append(text)
    message = f"{CRASH.name} holds no traceback of a worker"
    raise ValueError(message)


def processes(lines: int, count: int = 10_000, seed: int = 1) -> Iterator[bytes]:
    """Ten thousand processes that interleave; now and then one dies of a known or an unknown fault."""
    chance = random.Random(seed)
    for number in range(lines):
        pid = chance.randrange(count)
        head = f"(Worker_TP{pid % 8} pid={pid + 2}) "
        stamp = f"01-01 {number // 36000 % 24:02}:{number // 600 % 60:02}:{number // 10 % 60:02}"
        what = chance.random()
        if what < 0.001:
            row = f"ERROR {stamp} [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        elif what < 0.002:
            row = f"ERROR {stamp} [core.py:700] Odd{number}Error: nobody knows this one"
        elif what < 0.05:
            row = f'ERROR {stamp} [core.py:700]   File "/vllm/v1/core.py", line {number % 900}, in step'
        else:
            row = (
                f"INFO {stamp} [core.py:{number % 900}] step {number} took {chance.random():.3f} s"
            )
        yield (head + row + "\n").encode()


def pods(lines: int, count: int = 10_000, seed: int = 1) -> Iterator[bytes]:
    """The same from ten thousand pods, as records."""
    chance = random.Random(seed)
    for row in processes(lines, 8, seed):
        pod = f"pod-{chance.randrange(count)}"
        record = {
            "message": row.decode()[:-1],
            "kubernetes": {"pod_name": pod, "namespace_name": "n"},
        }
        yield json.dumps(record).encode() + b"\n"


def restarts(lines: int, seed: int = 1) -> Iterator[bytes]:
    """A server that crashes and is started again, ten lines a life."""
    del seed
    for number in range(lines // 10):
        stamp = f"01-01 {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
        api, core = f"(APIServer pid={number * 2 + 1})", f"(EngineCore pid={number * 2 + 2})"
        yield (
            f"{api} INFO {stamp} [api_server.py:1] vLLM API server version 0.10.2\n"
            f"{api} INFO {stamp} [utils.py:1] non-default args: {{'model': 'm/m', 'port': {number % 60000}}}\n"
            f"{core} INFO {stamp} [core.py:1] Initializing a V1 LLM engine (v0.10.2) with config: model='m/m', dtype=torch.bfloat16\n"
            f"{core} ERROR {stamp} [core.py:700] EngineCore failed to start.\n"
            f"{core} ERROR {stamp} [core.py:700] Traceback (most recent call last):\n"
            f'{core} ERROR {stamp} [core.py:700]   File "/vllm/v1/engine/core.py", line 1, in run\n'
            f"{core} ERROR {stamp} [core.py:700] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
            f"{api} ERROR {stamp} [async_llm.py:480] RuntimeError: Engine core initialization failed. See root cause above.\n"
            f"{api} INFO {stamp} [x.py:1] gone\n"
            "\n"
        ).encode()


def records(rows: Iterable[bytes]) -> Iterator[bytes]:
    """Lines as the JSON records of a container's output."""
    for row in rows:
        yield json.dumps({"log": row.decode().rstrip("\n"), "stream": "stderr"}).encode() + b"\n"
