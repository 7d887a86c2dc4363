"""Fuzzing: `python -m tests.fuzz CLAIM [--seconds N]` mutates fixtures towards branches not taken yet.

`growth` instead measures lines of two lengths and needs nothing. The others need atheris (`pip install atheris`, CPython on Linux; no dependency of the project). An input
that breaks a claim is written to `--findings` and ends the run; made small, it becomes a line of
`tests/test_findings.py`.
"""

import argparse
import importlib
import pkgutil
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import FIXTURES, fixtures

MAX_BYTES = 6_000
_REPEATED = (
    b"a", b" ", b"\\n", b"%|", b"&lt;", b"[", b"{", b'"', b"'", b"prompt: '", b"ERROR ", b"/a.py:1:", b"Error: ", b"(", b")", b"=", b", ",
    b"'a': ", b"--x ", b"vllm serve ", b"| ", b"\\\\", b"a.", b"1.", b"http://", b"NCCL ", b"Traceback (most recent call last):\\n", b"\t",
)  # fmt: skip


def seeds(claim: str) -> Iterator[bytes]:
    """Pieces of fixtures around what they state, and what lies beside logs."""
    if claim in ("artefact", "files", "source"):
        for path in sorted((FIXTURES / "artefacts").rglob("*")):
            if path.is_file() and path.name != "expected.toml":
                for number in range(12) if claim == "artefact" else (0,):
                    mark = bytes([number]) if claim == "artefact" else b""
                    yield mark + path.read_bytes()[: MAX_BYTES - 1]
        if claim == "artefact":
            return
    if claim == "source":
        yield from packed()
        return
    for fixture in fixtures():
        rows = fixture.log.read_bytes().split(b"\n")
        at = max(0, (fixture.line or 1) - 8)
        yield b"\n".join(rows[at:])[:MAX_BYTES]
        yield b"\n".join(rows)[: MAX_BYTES // 2]


def packed() -> Iterator[bytes]:
    """The same log in every compression."""
    import bz2
    import gzip
    import lzma

    from backports import zstd  # type: ignore[import-not-found,unused-ignore]

    text = next(fixtures()).log.read_bytes()[:2_000]
    for pack in (gzip.compress, bz2.compress, lzma.compress, zstd.compress):
        yield pack(text)
    yield text.decode("utf-8", "replace").encode("utf-16")


def words() -> Iterator[bytes]:
    """What patterns and readers look for, as a dictionary of libFuzzer."""
    from vllm_triage.catalogue import load

    for rule in load().rules.values():
        for pattern in rule.worded:
            for text in (*pattern.keywords, *pattern.any_of):
                yield text.encode()
    for text in (
        "Traceback (most recent call last):\n",
        '  File "/x/vllm/v1/engine/core.py", line 7, in run\n',
        "(EngineCore_DP0 pid=7) ",
        "ERROR 12-01 06:17:30 [core.py:1] ",
        "INFO 12-01 06:17:30 [core.py:1] ",
        "[rank0]: ",
        "2026-12-01T06:17:30.1Z stderr F ",
        "2026-12-01T06:17:30.1Z stderr P ",
        '{"log":"',
        '\\n","stream":"stderr"}',
        "\x1b[36m",
        "__CURSOR=a\n",
        "MESSAGE=",
        "MESSAGE\n",
        "\x1f\x8b",
        "\xff\xfe",
    ):
        yield text.encode("latin-1")


def grow(seconds: int) -> None:
    """Look for a line whose time grows faster than it: a piece of text, repeated, put anywhere into a fixture."""
    from tests import claims, hostile

    chance = random.Random(1)
    pieces = [*(one.encode() for one in hostile.CONTROLS), *_REPEATED]
    end = time.monotonic() + seconds
    tried = 0

    def cost(data: bytes) -> float:
        start = time.process_time()
        claims.report_of(lambda one: one.feed_block(1, data))
        return time.process_time() - start

    while time.monotonic() < end:
        rows = chance.choice(hostile.windows()).split(b"\n")
        number = chance.randrange(len(rows))
        row, at = rows[number], chance.randrange(len(rows[number]) + 1)
        piece = b"".join(chance.choices(pieces, k=chance.choice((1, 1, 2))))

        def longer(size: int) -> float:
            rows[number] = row[:at] + piece * (size // len(piece)) + row[at:]  # noqa: B023
            return cost(b"\n".join(rows))  # noqa: B023

        tried += 1
        if longer(80_000) > max(0.02, 7 * longer(20_000)) and longer(160_000) > 7 * longer(40_000):
            print(f"{piece!r} in {row!r} at {at}")  # noqa: T201
    print(f"{tried} lines at two lengths")  # noqa: T201


def _entry(word: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"'


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument(
        "claim", choices=["lines", "whole", "source", "artefact", "files", "stream", "growth"]
    )
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    if options.claim == "growth":
        grow(options.seconds)
        return
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        sys.exit("tests.fuzz: needs atheris: pip install atheris")
    with atheris.instrument_imports(include=["vllm_triage"]):
        package = importlib.import_module("vllm_triage")
        for module in pkgutil.walk_packages(package.__path__, "vllm_triage."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    claim = importlib.import_module("tests.claims").CLAIMS[options.claim]
    corpus = options.findings / options.claim
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(options.claim)):
        (corpus / f"seed-{number}").write_bytes(seed)
    dictionary = options.findings / "words"
    dictionary.write_text("\n".join(map(_entry, dict.fromkeys(words()))) + "\n", "utf-8")
    started = time.monotonic()

    def one(data: bytes) -> None:
        claim(data)

    atheris.Setup(
        [
            "fuzz",
            str(corpus),
            f"-dict={dictionary}",
            f"-max_total_time={options.seconds}",
            f"-max_len={MAX_BYTES}",
            f"-artifact_prefix={options.findings}/{options.claim}-",
            "-timeout=20",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            "-verbosity=1",
        ],
        one,
    )
    print(f"claim {options.claim}, {options.seconds} s, from {started:.0f}", file=sys.stderr)  # noqa: T201
    atheris.Fuzz()


if __name__ == "__main__":
    main()
