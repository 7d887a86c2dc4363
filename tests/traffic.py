"""Made-up traffic of a server, wrapped as containers and shippers wrap it; seeded."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures"
CRASHES = ("oom", "engine", "distributed", "network", "request")

Wrap = Callable[[str, int], str]


def _stamp(number: int) -> str:
    return f"2026-03-0{1 + number // 86400 % 9}T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"


WRAPS: dict[str, Wrap] = {
    "plain": lambda text, _: text,
    "timestamps": lambda text, n: f"{_stamp(n)}.{n % 1000:03}456789Z {text}",
    "cri": lambda text, n: f"{_stamp(n)}.{n % 1000:03}456789Z stdout F {text}",
    "docker": lambda text, n: json.dumps(
        {"log": text + "\n", "stream": "stdout", "time": f"{_stamp(n)}.{n % 1000:03}Z"}
    ),
    "compose": lambda text, n: f"vllm-{n % 3}  | {text}",
    "pods": lambda text, n: f"[pod/vllm-7d9f8-{n % 2}x/server] {text}",
    "syslog": lambda text, n: (
        f"Mar  {1 + n // 86400 % 9} {_stamp(n)[11:]} host-1 vllm[{77 + n % 2}]: {text}"
    ),
    "crlf": lambda text, _: text + "\r",
    "colour": lambda text, _: f"\x1b[36m{text}\x1b[0m",
    "records": lambda text, n: json.dumps({"ts": 1760000000 + n, "level": "info", "msg": text}),
}


def _time(number: int) -> str:
    return f"03-0{1 + number // 86400 % 9} {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"


def row(chance: random.Random, number: int) -> str:
    """One line of a server that works, or nearly."""
    api = chance.choice(("(APIServer pid=1) ", "(APIServer_1 pid=20) ", ""))
    status = chance.choice(
        ("200 OK",) * 12
        + ("400 Bad Request", "404 Not Found", "500 Internal Server Error", "400 OK", "200")
    )
    path = chance.choice(
        ("/v1/completions", "/v1/chat/completions", "/generate", "/v2/x?y=1", "/health")
    )
    kv = chance.choice((3.1, 50.0, 79.9, 94.9, 95.0, 99.7))
    waiting = chance.choice((0, 0, 0, 0, 1, 12))
    kind = chance.random()
    if kind < 0.6:
        verb = "GET" if path == "/health" or kind < 0.05 else "POST"
        return f'{api}INFO:     10.0.0.{chance.randrange(250)}:{chance.randrange(60000)} - "{verb} {path} HTTP/1.1" {status}'
    if kind < 0.75:
        engine = chance.choice(("Engine 000: ", "Engine 001: ", ""))
        return (
            f"{api}INFO {_time(number)} [loggers.py:123] {engine}Avg prompt throughput: {chance.choice((0.0, 12.5, 900.1))} tokens/s, "
            f"Avg generation throughput: {chance.choice((0.0, 3.2, 88.8, 1234.5))} tokens/s, Running: {chance.choice((0, 1, 7, 20))} reqs, "
            f"Waiting: {waiting} reqs, GPU KV cache usage: {kv}%, Prefix cache hit rate: 51.2%"
        )
    if kind < 0.9:
        prompt = " ".join(
            chance.choice(
                (
                    "why",
                    "Error",
                    "a",
                    "raven",
                    "Traceback",
                    "|",
                    "\\n",
                    "100%|x",
                    "CUDA out of memory",
                )
            )
            for _ in range(9)
        )
        return f"{api}INFO {_time(number)} [logger.py:40] Received request cmpl-{number}: prompt: '{prompt}', params: SamplingParams(n=1)"
    return chance.choice(
        (
            f"{api}WARNING {_time(number)} [protocol.py:80] The following fields were present in the request but ignored: {{'a{number % 7}'}}",
            f"{api}INFO {_time(number)} [async_llm.py:{number % 900}] Aborted request cmpl-{number}.",
            f"(Worker_TP{number % 2} pid={70 + number % 2}) WARNING {_time(number)} [custom_all_reduce.py:1] a warning",
            f"{api}WARNING {_time(number)} [x.py:5] first\n{api}WARNING {_time(number)} [x.py:5]   second",
            f"{api}WARNING {_time(number)} [x.py:5] first\n{api}WARNING {_time(number)} [x.py:5] Chat template rejected the request: no",
            f"{api}INFO {_time(number)} [x.py:9] could not do it\n{api}INFO {_time(number)} [x.py:9] Traceback (most recent call last):\n"
            f'{api}INFO {_time(number)} [x.py:9]   File "/a/b.py", line {number}, in c\n{api}INFO {_time(number)} [x.py:9] ValueError: no',
            'Traceback (most recent call last):\n  File "/a/b.py", line 7, in c',
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "    indented rest",
            "",
            "plain words",
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            f"(Worker_TP1 pid=71) ERROR {_time(number)} [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "Loading safetensors checkpoint shards: 100%|##########| 2/2",
        )
    )


def traffic(seed: int, lines: int, *, wrap: str = "plain", crash: bool = True) -> Iterator[bytes]:
    """A start, traffic with some trouble in it, a real crash in the middle of more traffic."""
    chance = random.Random(seed)
    envelope = WRAPS[wrap]
    out = [
        "(APIServer pid=1) INFO 03-01 00:00:00 [api_server.py:1] vLLM API server version 0.10.2",
        "(APIServer pid=1) INFO:     Application startup complete.",
    ]
    out += [row(chance, number) for number in range(lines)]
    if crash:
        logs = sorted(FIXTURES.glob(f"{chance.choice(CRASHES)}/*.log"))
        text = chance.choice(logs).read_text("utf-8", "replace").splitlines()[-400:]
        out += text
        out += [row(chance, number) for number in range(lines, lines + lines // 2)]
    for number, line in enumerate(line for row in out for line in row.split("\n")):
        yield envelope(line, number).encode() + b"\n"
