"""Lines: the printed text cut into time, level, process, code place and message."""

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import regex

from vllm_triage.expressions import expression
from vllm_triage.kinds import Level, Phase
from vllm_triage.numbers import whole


class Origin(StrEnum):
    """What sort of line it is; requests are user text and never evidence."""

    LOG = "log"
    ACCESS = "access"
    STATISTICS = "statistics"
    REQUEST = "request"
    ARTEFACT = "artefact"


Key = tuple[str, str | None, str | None, int | None, int | None]
"""Source, container, process, pid and rank: what separates the interleaved processes of one input."""


Owner = tuple[str | None, ...]
"""A `Key` without its source, with every digit 0."""


class Line(NamedTuple):
    """One printed line; `text` has no prefix but keeps its indentation.

    `run` and `phase` are those of the moment when it was said: what it belongs to may be
    complete only much later.
    """

    source: str
    number: int
    raw: str
    text: str
    time: str | None = None
    level: Level | None = None
    process: str | None = None
    pid: int | None = None
    rank: int | None = None
    place: str | None = None
    origin: Origin = Origin.LOG
    container: str | None = None
    run: int | None = None
    phase: Phase | None = None

    @property
    def key(self) -> Key:
        """What separates the interleaved processes of one input."""
        rank = self.rank if self.process is None and self.raw.lstrip().startswith("[") else None
        return (self.source, self.container, self.process, self.pid, rank)


class Prefix(NamedTuple):
    """What stands before a record's text, cut."""

    time: str | None = None
    level: Level | None = None
    process: str | None = None
    pid: int | None = None
    rank: int | None = None
    place: str | None = None
    is_uvicorn: bool = False


_LEVELS = {
    "D": Level.DEBUG,
    "T": Level.DEBUG,
    "I": Level.INFO,
    "N": Level.INFO,
    "W": Level.WARNING,
    "E": Level.ERROR,
    "C": Level.ERROR,
    "F": Level.ERROR,
}

_PROCESS = expression(
    r"\((?P<name>[A-Za-z_][\w.:-]{0,200})?(?:,? (?:rank=(?P<rank>\d+)|(?P<part>[A-Z]{1,9}\d{1,9}(?:_[A-Z]{1,9}\d{1,9}){0,9})))?"
    r"(?:,? ?pid=(?P<pid>\d+))?(?:, ip=[\w.:]+)?\)\s?"
)
_RANK = expression(r"\[(?:rank|default)(?P<rank>\d+)\]:?\s?")
# vLLM's own formatter, every release; 0.31 puts the process in front of the level, products built on it the year in front of the month.
_VLLM = expression(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) "
    r"\[?(?P<place>[\w./<>+-]+:\d+)\](?: |$)"
)
_VLLM_UNDATED = expression(r"(?P<level>DEBUG|INFO|WARNING|ERROR) +\[(?P<place>[\w./]+:\d+)\] ")
_UVICORN = expression(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):\s{1,9}(?=\S)")
_TORCH_CPP = expression(
    r"\[(?P<level>[DIWEF])(?:\d{3,4})?(?: (?P<time>\d\d:\d\d:\d\d[\d.]*))? (?P<place>[\w./]+\.(?:cpp|cc|h|cu):\d+)\] "
)
_TORCH_PYTHON = expression(
    r"(?:\[[\w:,]+\]:)?(?P<level>[DIWEF])\d{4} (?P<time>\d\d:\d\d:\d\d[\d.]*) +\d+ (?P<place>[\w./-]+:\d+)\] "
)
_RAY = expression(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+)\s+(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<place>[\w.]+:\d+) -- "
)
_RAY_CPP = expression(
    r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+) (?P<level>[DIWEC]) \d+ \d+\] (?:\(\w+\) )?(?P<place>[\w.]+:\d+): "
)
_LOGURU = expression(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+) ?\| ?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|SUCCESS|TRACE)\s*\| ?(?P<place>[\w.:<>-]+) - "
)
_DASHED = expression(
    r"(?:\[[\w-]+\] )?(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*Z?) - (?:(?P<place>[\w.]+) - )?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
)
_NAMED = expression(
    r"\[?(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?)\]?,? +(?:(?P<place>[a-z_][\w.]*) +)?(?:\d+ +)?"
    r"\[?(?P<level>DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\]?(?! \d\d-\d\d \d\d:)\s*:?\s?(?:\[address=[\w.:, =-]+\] )?(?:\[[\w:. -]+\] )?"
)
_BRACKETS = expression(
    r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,\d]*)\](?:\[\w+\])?\[(?P<level>[DIWEC])\] "
)
_NCCL = expression(
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )?[\w.-]+:(?P<pid>\d+):\d+ \[(?P<gpu>-?\d+)\] (?P<text>(?:\S+ )?NCCL (?P<level>INFO|WARN|TRACE)\b)"
)
_TIMED = expression(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?)\]|(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?))[ \t]"
)

_BY_FIRST: dict[str, tuple[regex.Pattern[str], ...]] = {
    "(": (_PROCESS,),
    "[": (_RANK, _TORCH_CPP, _RAY_CPP, _BRACKETS, _TORCH_PYTHON, _NAMED, _DASHED, _TIMED),
    **dict.fromkeys("DIWEC", (_VLLM, _UVICORN, _VLLM_UNDATED, _TORCH_PYTHON)),
    "F": (_TORCH_PYTHON,),
    **dict.fromkeys("12", (_RAY, _LOGURU, _DASHED, _NAMED, _TIMED)),
}

_ACCESS = expression(
    r"""[\w.:\[\]-]+ - (?:\S+ \[[^\]"]{10,40}\] )?"[A-Z]+ \S+ HTTP/[\d.]+" \d{3}\b"""
)
# What a client sent, quoted by an error about it: never evidence.
_QUOTED = r"""(?:'(?:[^'\\]|\\.)*+(?:'|$)|"(?:[^"\\]|\\.)*+(?:"|$))"""
# What users and models wrote, in the JSON, the objects and the examples of vLLM and its clients.
_WRITTEN = expression(
    r"""(['"](?:content|prompt|text|reasoning|reasoning_content|input)['"]: ?|\b(?:content|prompt|text|reasoning_content)=|(?:[Pp]rompt|Generated text): )"""
    rf"(?:{_QUOTED}|\[{_QUOTED}(?:, ?{_QUOTED})*+)"
)
WRITTEN_WORDS = ("content", 'prompt"', "prompt'", "prompt=", 'text"', "text'", "text=", "text: ", "rompt: ", "reasoning", 'input"', "input'")  # fmt: skip
"""A line without one of these holds nothing that users or models wrote."""
REQUESTS = ("Received request ", "Generated response ", "Added request ", "Request log")
_STATISTICS = expression(r"(?:Engine \d+: |\d+ Engines Aggregated: )?Avg prompt throughput: ")
# Another logger's prefix, of a product built on vLLM; what somebody quotes has quotes or braces.
_BEFORE_STATISTICS = expression(
    r"""[^'"`{}]{1,150}?(?:[\]:-]|INFO) {1,2}(?=(?:Engine \d+: |\d+ Engines Aggregated: )?Avg prompt throughput: [\d.]+ tokens/s, Avg generation )"""
)
_KNOWN_STARTS = (*REQUESTS, "Engine ", "Avg prompt throughput: ")
BESIDE_STATISTICS = ("Prefix cache hit rate: ", "SpecDecoding metrics: ", "Speculative metrics: ")
"""How the lines begin that an engine prints beside its window."""
# vLLM's own prefix, or no more than the process: each of its parts ends with its one blank.
_USUAL = expression(
    r"(?:\([^()]{1,120}\) )*+(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?[\w./<>+-]+:\d+\] )?"
)
_MAX_PREFIX = 200
_GLUED = expression(
    r"(?:it/s|s/it|toks/s|\?it/s)[^\[\]]{0,40}\](?=(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d )"
)
# Records of a traceback that a paste has run together: a record's own last word is the colon.
_RUN_TOGETHER = "Traceback (most recent call last): "
_RECORD = expression(
    r" (?=(?:\([\w.-]{1,60}(?: \S{1,40})? pid=\d+\) ){0,3}+(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[\w./]{1,80}:\d+\])"
)
# What begins a line of a traceback: a frame, the source below it, marks, another traceback, an exception.
_RAN_INTO = expression(
    r""" (?=File "[^"\n]{1,400}", line \d{1,7}, in )|(?<=", line \d{1,7}, in [\w<>]{1,80}) |(?<=\(most recent call last\):) | (?=(?:The above|During handling of the above) exception |Traceback \(most)| (?=(?:[A-Za-z_]\w{0,60}\.){0,8}+[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit): )"""
)
FOLDED_BY_RAY = "x across cluster]"
# What Ray adds to the line that stands for several like it.
_FOLDED_BY_RAY = expression(
    r" \[repeated \d{1,9}x across cluster\](?: \(Ray deduplicates logs[^\n]{0,300})?$"
)
_MAX_PARTS = 2000
# The margin of an exception group's parts, and the rules between them.
_GROUP = expression(r" {1,80}(?:\|(?: |$)|\+ (?=Exception Group)|\+-[-+]*(?: \d+ -+)?$)")
_RANK_IN_NAME = expression(r"(?:_|^|Worker[-_])(?:TP)?(\d+)$")
_IN_MESSAGE = expression(r"\[(?:PG [^\]]{0,60})?Rank (\d+)\]")


def _cut(text: str) -> tuple[Prefix, str] | None:
    """The first part of a prefix, and what follows it."""
    if text[0] == "(":
        end = text.find(") ", 0, _MAX_PREFIX) + 2
        known = _known_process(text[:end]) if end > 1 else None
        if known is not None:
            return known, text[end:]
    for pattern in _BY_FIRST.get(text[:1], ()):
        found = pattern.match(text)
        if found is None:
            continue
        rest = text[found.end() :]
        if pattern is _PROCESS:
            process = _process(found)
            return None if process is None else (process, rest)
        groups = found.groupdict()
        level = groups.get("level")
        rank = groups.get("rank")
        prefix = Prefix(
            time=groups.get("time"),
            level=_LEVELS.get(level[0]) if level else None,
            rank=whole(rank) if rank else None,
            place=groups.get("place"),
        )
        return prefix, rest
    return None


def _process(found: regex.Match[str]) -> Prefix | None:
    name, rank, part, pid = found.group("name", "rank", "part", "pid")
    if pid is None and name not in ("raylet", "autoscaler", "gcs_server"):
        return None
    label = f"{name}_{part}" if name and part else name
    number = rank
    if number is None and label:
        inner = _RANK_IN_NAME.search(label)
        number = inner[1] if inner and "Worker" in label else None
    if rank is not None and label:
        label = f"{label}_{rank}"
    return Prefix(
        process=label,
        pid=whole(pid) if pid else None,
        rank=whole(number) if number else None,
    )


@lru_cache(maxsize=1024)
def _known_process(text: str) -> Prefix | None:
    found = _PROCESS.fullmatch(text)
    return None if found is None else _process(found)


def usual_prefix(text: str) -> tuple[Prefix, int] | None:
    """A prefix of the usual form and its length, looked up; None where a text must be cut part by part."""
    end = text.find("] ", 0, _MAX_PREFIX) + 2
    if end > 1:
        prefix = _usual(text[:end])
        if prefix is not None and prefix.place is not None:
            # Behind the code place only the name of another process is cut.
            return None if text.startswith(("(", "[rank"), end) else (prefix, end)
    if text[:1] == "(":
        end = text.find(") ", 0, _MAX_PREFIX) + 2
        prefix = _usual(text[:end]) if end > 1 else None
        if prefix is not None and text[end : end + 1] not in _BY_FIRST:
            return prefix, end
    return None


@lru_cache(maxsize=1024)
def _usual(text: str) -> Prefix | None:
    if _USUAL.fullmatch(text) is None:
        return None
    prefix, rest = _prefix(text + "x")
    return prefix if rest == "x" else None


def _prefix(text: str) -> tuple[Prefix, str]:
    """Cut a text part by part; the rest is what was said."""
    time = level = process = pid = rank = place = None
    uvicorn = False
    rest = text
    for _ in range(8):
        if not rest or rest[0] not in _BY_FIRST:
            break
        found = _cut(rest)
        if found is None:
            break
        cut, rest = found
        uvicorn = cut.level is not None and cut.place is None and cut.time is None
        time = cut.time or time
        level = cut.level or level
        # Stacked prefixes come outermost first: the innermost names the process that printed.
        process = cut.process or process
        pid = cut.pid if cut.pid is not None else pid
        rank = cut.rank if cut.rank is not None else rank
        place = cut.place or place
        if cut.place is not None and not rest.startswith(("(", "[rank")):
            break
    return Prefix(time, level, process, pid, rank, place, uvicorn), rest


def parse(
    source: str,
    number: int,
    text: str,
    *,
    raw: str | None = None,
    time: str | None = None,
    level: str | None = None,
    container: str | None = None,
) -> tuple[Line, ...]:
    """Cut one printed line; several come back where a record is glued to a progress bar or to others.

    `time`, `level` and `container` are what an envelope stated; the line's own words win.
    """
    shown = text if raw is None else raw
    if "%|" in text and len(text) < 4096:
        glued = _GLUED.search(text)
        if glued is not None:
            end = glued.end()
            head = Line(source, number, shown, text[:end], container=container)
            rest = parse(source, number, text[end:], raw=shown, time=time, container=container)
            return (head, *rest)
    if _RUN_TOGETHER in text:
        records = _RECORD.split(text, _MAX_PARTS)
        if len(records) > 1:
            cuts = (parse(source, number, one, time=time, container=container) for one in records)
            return tuple(line for lines in cuts for line in lines)
    known = _LEVELS.get(level[:1].upper()) if level else None
    line = _parse(source, number, text, shown, time, known, container)
    if "\\n" in line.text and line.origin is Origin.LOG and _is_escaped(line):
        # A whole failure in one string, as a repr or a JSON value that lost its braces.
        parts = line.text.replace('\\"', '"').split("\\n")[:_MAX_PARTS]
        return tuple(line._replace(text=part, raw=part) for part in parts)
    if line.text.startswith(_RUN_TOGETHER) and line.origin is Origin.LOG:
        parts = _RAN_INTO.sub("\n", line.text).split("\n")[:_MAX_PARTS]
        return tuple(line._replace(text=part, raw=part) for part in parts)
    return (line,)


def _is_escaped(line: Line) -> bool:
    if line.level in (Level.DEBUG, Level.INFO):
        return False
    return "Traceback (most recent call last):\\n" in line.text or '\\n  File \\"' in line.text


def _parse(
    source: str,
    number: int,
    text: str,
    raw: str,
    time: str | None,
    level: Level | None,
    container: str | None,
) -> Line:
    known = usual_prefix(text)
    prefix, rest = _prefix(text) if known is None else (known[0], text[known[1] :])
    time = prefix.time or time
    level = prefix.level or level
    _, _, process, pid, rank, place, uvicorn = prefix
    if rest[-1:].isspace():
        rest = rest.rstrip()
    if FOLDED_BY_RAY in rest:
        rest = _FOLDED_BY_RAY.sub("", rest)
    if any(word in rest for word in WRITTEN_WORDS):
        rest = _WRITTEN.sub(r"\1'...'", rest)
    if rest[:1] == " " and ("|" in rest or "+" in rest):
        rest = _GROUP.sub("", rest, count=1)
    if "Avg prompt throughput: " in rest and not rest.startswith(_KNOWN_STARTS):
        found = _BEFORE_STATISTICS.match(rest)
        rest = rest if found is None else rest[found.end() :]
    if "NCCL " in rest:
        found = _NCCL.match(rest)
        if found is not None:
            level = Level.ERROR if found["level"] == "WARN" else Level.INFO
            pid = whole(found["pid"]) if pid is None else pid
            rest = found["text"] + rest[found.end() :]
    if rank is None and "Rank " in rest:
        inner = _IN_MESSAGE.search(rest)
        rank = whole(inner[1]) if inner else None
    origin = _origin(rest, uvicorn=uvicorn)
    if origin is Origin.ACCESS and rest.endswith(" OK") and rest[-8:-6] == '" ':
        # The phrase and the code say the same; uvicorn takes one from the other.
        rest = f"{rest[:-6]}200 OK"
    return Line(
        source, number, raw, rest, time, level, process, pid, rank, place, origin, container
    )


def _origin(text: str, *, uvicorn: bool) -> Origin:
    if '" ' in text and (uvicorn or " - " in text) and _ACCESS.match(text):
        return Origin.ACCESS
    if text.startswith(REQUESTS):
        return Origin.REQUEST
    if "Avg prompt throughput: " in text and _STATISTICS.match(text):
        return Origin.STATISTICS
    if text.startswith(BESIDE_STATISTICS):
        return Origin.STATISTICS
    return Origin.LOG
