"""Tracebacks: which lines are frames, source, marks and exceptions, and what they say."""

from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from vllm_triage.expressions import expression
from vllm_triage.numbers import whole


class Frame(NamedTuple):
    """A frame of a traceback; `file` starts at the package's folder."""

    file: str
    line: int
    function: str


class Part(Enum):
    """What a line is to a traceback."""

    HEADER = auto()
    FRAME = auto()
    SOURCE = auto()
    EXCEPTION = auto()
    CAUSE = auto()
    CONTEXT = auto()
    BLANK = auto()
    OTHER = auto()


HEADER = "Traceback (most recent call last)"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"

_FRAME = expression(
    r'\s*File "(?P<file>[^"\n]{1,500})", line (?P<line>\d+)(?:, in (?P<function>.{1,200}))?'
)
_RICH_FRAME = expression(
    r"\s*(?P<file>(?:/|[A-Z]:\\)\S{1,500}\.py)(?::(?P<line>\d+))? in (?P<function>[\w<>.]+)"
)
_MARKS = expression(r"\s*[~^][\s~^]*$")
_NUMBERED = expression(r"\s*(?:[-❱>]+ ?)?\d+ ")
_FOLDED = expression(
    r"\s*(?:\.\.\.<\d+ lines>\.\.\.|\[Previous line repeated \d+ more times?\]|[│└├] ?)"
)
_EXCEPTION = expression(
    r"(?P<name>(?:[A-Za-z_]\w*\.)*(?:Exception|Error|[A-Za-z_]\w*"
    r"(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Failure|Unavailable|Expired|Refused|Abort(?:ed)?"
    r"|OutOfResources|NotSupported|CompilerNotFound|InvalidCxxCompiler|InvalidArgument|NotFound|IsEnabled|StopIteration)))"
    r"(?:_\w+)?(?=:(?:\s|$)|\s*$)"
)
_DOTTED = expression(
    r"(?P<name>[a-z_]\w*(?:\.[A-Za-z_]\w*)*\.[A-Z](?![A-Z\d_]*+(?:: |$))\w*)(?=: |$)"
)
# What programs say of an error begins with these words; no exception has such a name.
_ANY_NAME = expression(
    r"(?P<name>(?!(?:note|hint|help|info|error|warning|usage|debug):)(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?=: |$)"
)
_REPR = expression(
    r"(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80}(?:Error|Exception))\(['\"]"
)
_MAX_NAME = 400
_RAISE = expression(r"\s*raise (?P<name>[A-Za-z_][\w.]*)\((?P<rest>.*)")
_LITERAL = expression(r"""[fFrR]{0,2}(?:"((?:[^"\\]|\\.){0,2000})"|'((?:[^'\\]|\\.){0,2000})')""")
_PACKAGE = expression(r".*?(?:site-packages|dist-packages)/")
_CHECKOUT = expression(r".*/(?=(?:vllm|torch|transformers)/)")


def exception_name(text: str, *, in_traceback: bool) -> str | None:
    """The class that an exception line names; None when the line is none.

    Inside a traceback any name in the first column will do; elsewhere it must look like a class.
    NCCL's own result names continue torch's message.
    """
    if not text or not (text[0].isalpha() or text[0] == "_"):
        return None
    # A class's name is the first word, or all there is; no other text is worth a look.
    word, *rest = text[:_MAX_NAME].split(None, 1)
    if len(text) > _MAX_NAME and not rest:
        return None
    if not word.endswith(":") and rest:
        return None if in_traceback else _in_repr(text)
    if not in_traceback and word.endswith(("')", '")')):
        return _in_repr(text)
    return _class_name(f"{word} " if rest else word, in_traceback=in_traceback)


@lru_cache(maxsize=512)
def _class_name(text: str, *, in_traceback: bool) -> str | None:
    found = _EXCEPTION.match(text) or _DOTTED.match(text)
    if found is None and in_traceback:
        found = _ANY_NAME.match(text)
    if found is None or found["name"].startswith("nccl"):
        return None
    return found[0] if "_" in found[0] and "." in found[0] else found["name"]


def _in_repr(text: str) -> str | None:
    """The class in `RuntimeError('the text')`, as loggers print an exception they were given."""
    found = _REPR.match(text)
    return found["name"] if found and text.rstrip().endswith(("')", '")')) else None


def frame(text: str) -> Frame | None:
    """Read a frame line, CPython's or rich's."""
    if "File " in text:
        found = _FRAME.match(text)
    elif ".py" in text:
        found = _RICH_FRAME.match(text)
    else:
        return None
    if found is None:
        return None
    name, line, function = found.group("file", "line", "function")
    return Frame(shorten(name), whole(line or "0"), (function or "").strip())


def shorten(path: str) -> str:
    """Cut a path before its package: `vllm/v1/worker/gpu_worker.py`."""
    path = path.replace("\\", "/")
    if path.startswith("<"):
        return path
    cut = _PACKAGE.match(path) or _CHECKOUT.match(path)
    return path[cut.end() :] if cut else path


def separator(text: str) -> Part | None:
    """Tell the two sentences that chain exceptions, and the header of a traceback."""
    if HEADER in text:
        return Part.HEADER
    if "The above exception" in text or "During handling" in text:
        if _CAUSE in text:
            return Part.CAUSE
        if _CONTEXT in text:
            return Part.CONTEXT
    return None


def is_source(text: str, *, flat: bool, just_after_frame: bool) -> bool:
    """Tell a source line, its marks or a notebook's numbered line inside an open traceback.

    `flat` tracebacks lost their indentation on the way: only the line after a frame is source.
    """
    if _MARKS.match(text) or _FOLDED.match(text) or _NUMBERED.match(text):
        return True
    if flat:
        return just_after_frame
    return text[:2] in ("  ", "\t", "\t\t") or text[:1] == "\t"


def raised(source: list[str]) -> tuple[int, str, str] | None:
    """Find a `raise Class("text" ...)` in source lines: its position, class and joined text.

    What an f-string would fill in stays as its own braces.
    """
    for index, text in enumerate(source):
        found = _RAISE.match(text)
        if found is None:
            continue
        body = " ".join([found["rest"], *(line.strip() for line in source[index + 1 :])])
        parts = [a or b for a, b in _LITERAL.findall(body)]
        return index, found["name"], "".join(parts)
    return None
