"""What a text names and a release does not know: flags, variables, metrics and commands."""

from collections.abc import Iterable

import regex

from tests import releases
from tests.commands import PROGRAMS, VARIABLES, faults
from tests.releases import ALL, VERSIONS, Releases, span
from vllm_triage.versions import parse

# What the guide or a reader may look for and no release has: it may be named, never told to be used.
NEVER_EXISTED = frozenset(
    ("--disable-flash-attn", "--speculative-method", "--input-tokens", "--output-tokens", "NCCL_TIMEOUT")
)  # fmt: skip

# Flags that texts name without their program before them.
_FOREIGN = frozenset(
    ("--mem", "--gpus", "--previous", "--local-dir", "--no-build-isolation", "--pid", "--sort-by", "--model",
     "--rules", "--fail-on", "--no-redact", "--no-pager", "--format", "--all", "--apply-steps", "--vllm", "--all-files", "--help")
)  # fmt: skip

_TOKEN = regex.compile(
    r"(?<![\w./-])--[a-zA-Z][\w.-]*\w|\b(?:VLLM|NCCL|GLOO|CUDA|TORCH|PYTORCH|HF|UCX|HCCL)_[A-Z0-9_]*[A-Z0-9]\b"
    r"|vllm:[a-z0-9_]+|\bvllm (?:bench (?:latency|serve|throughput)|collect-env)\b"
)
_CODE = regex.compile(r"`([^`]+)`")
_RELEASE = r"(?:vLLM )?(0\.\d+(?:\.\d+){0,2}(?:\.post\d+)?)"
_CLAIM = regex.compile(
    rf"{_RELEASE}\s*(?:-|–|to)\s*{_RELEASE}|(?:until|through|up to|ended with|to) {_RELEASE}|(?:before|below|older than) {_RELEASE}"
    rf"|(?:from|since|in|came with) {_RELEASE}|{_RELEASE}(?:\+| and later| or later| or newer)|<={_RELEASE}|>={_RELEASE}",
    regex.IGNORECASE,
)  # fmt: skip
_SENTENCE = regex.compile(r"(?<=[.;!?])\s+")
_AFTER = regex.compile(r"[`\"]*\s*\(?")
_BEFORE = regex.compile(r"[,:]?\s*[`(\"]*")
_CUDA_CODE = regex.compile(r"CUDA_(?:ERROR|R)_")


def text_faults(text: str, owner: Releases) -> tuple[str, ...]:
    """What a text names and some release of those that read it does not know.

    A release in the same sentence bounds the claim: right before or after the name to just
    these releases, elsewhere in the sentence to some release.
    """
    out: list[str] = []
    for sentence in _SENTENCE.split(text):
        claims = [(found.start(), found.end(), _claimed(found)) for found in _CLAIM.finditer(sentence)]  # fmt: skip
        # A command is checked as one.
        prose = _CODE.sub(lambda found: " " * len(found[0]) if _is_command(found[1]) else found[0], sentence)  # fmt: skip
        for found in _TOKEN.finditer(prose):
            if found[0] in NEVER_EXISTED or _CUDA_CODE.match(found[0]):
                continue
            held = _held(found[0])
            wanted = _adjacent(sentence, found.start(), found.end(), claims)
            if wanted is not None:
                missing = wanted - held
            elif claims:
                missing = frozenset() if held else ALL
            else:
                missing = owner - held
            if missing:
                out.append(f"{found[0]}: unknown in {_short(missing)}: {sentence!r}")
        for code in _CODE.findall(sentence):
            if not _is_command(code) or code == "vllm serve":
                continue
            wrong = {version: faults(code, version) for version in owner}
            bad = frozenset(version for version, found_ in wrong.items() if found_)
            if bad and (not claims or bad == owner):
                out.append(
                    f"{code}: {next(one for one in wrong.values() if one)} in {_short(bad)}"
                )
    return tuple(out)


def _is_command(code: str) -> bool:
    first, blank, _ = code.partition(" ")
    return bool(blank) and (first in PROGRAMS or bool(regex.fullmatch(r"[A-Z_]+=.*", first)))


def _held(token: str) -> Releases:
    if token.startswith("vllm:"):
        return releases.metric(token)
    if token.startswith("vllm "):
        return releases.subcommand(token.removeprefix("vllm "))
    if token.startswith("--"):
        base = token.partition(".")[0].partition("=")[0]
        if base in _FOREIGN:
            return ALL
        return frozenset().union(
            *(
                releases.flags(one).get(base, frozenset())
                for one in ("serve", "bench throughput", "bench serve")
            )
        )
    if token.startswith("VLLM_") and token not in VARIABLES:
        return releases.variable(token)
    return ALL if token in VARIABLES else frozenset()


def _claimed(found: regex.Match[str]) -> Releases:
    first, last, until, before, since, later, most, least = found.groups()
    if first:
        return span(first, last)
    if before:
        number = parse(before)
        return _last(frozenset(one for one in VERSIONS if number and (parse(one) or number) < number))  # fmt: skip
    if until or most:
        return _last(span(None, until or most))
    return span(since or later or least, None)


def _last(found: Releases) -> Releases:
    """What is said to end with a release was there in it; when it came is not said."""
    return frozenset(sorted(found, key=VERSIONS.index)[-1:])


def _adjacent(
    sentence: str, start: int, end: int, claims: Iterable[tuple[int, int, Releases]]
) -> Releases | None:
    after = [
        held for first, _, held in claims if first >= end and _AFTER.fullmatch(sentence[end:first])
    ]
    before = [
        held
        for _, last, held in claims
        if last <= start and _BEFORE.fullmatch(sentence[last:start])
    ]
    return next(iter(after + before), None)


def _short(found: Releases) -> str:
    ordered = sorted(found, key=VERSIONS.index)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} ... {ordered[-1]} ({len(ordered)})"
