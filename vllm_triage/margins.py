"""Margins: what a paste, a launcher or a shipper without name puts before every line."""

import regex

from vllm_triage.expressions import expression

# What vLLM's own formatter prints, with the process that newer releases put in front.
_KNOWN = expression(
    r"(?:\([A-Za-z_][\w.]*(?: \S{1,40})? pid=\d+\) )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[\w./]+:\d+\]"
)
# Prefixes that are read further on: they name the process or the time.
_READ_LATER = expression(
    r"\(|\[(?:rank|default)\d"
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\]?[ \t]*$"
)
# A cut traceback's first frame, and numbers in a column: their blanks are their own.
_NO_PASTE = expression(r"File |(?!\d{4}-\d\d-\d\d[ T]\d\d:)\d")
_VARYING = expression(r"[\w.@-]*\d[\w.@-]*")
_MAX_WIDTH = 200
_MAX_SEARCH = 400


class Margin:
    """Learns the margin from the first line that vLLM printed, and takes its shape off the others.

    Where that line starts at its first column there is no margin.
    """

    def __init__(self) -> None:
        self._shape: regex.Pattern[str] | None = None
        self._is_known = False
        self._is_first = True
        self._indent = ""

    @property
    def state(self) -> tuple[object, ...]:
        """What it has learnt; the same state reads the same line the same way."""
        return self._is_first, self._is_known, self._indent

    @property
    def is_settled(self) -> bool:
        """Whether it is known that there is none."""
        return self._is_known and self._shape is None and not self._indent and not self._is_first

    def without(self, text: str, *, is_whole: bool = True) -> str:
        """Give the text without margin; its own indentation stays.

        An envelope's content is not `is_whole`: only a physical line can be indented by a paste.
        """
        if self._is_first and is_whole and text.strip():
            self._is_first = False
            self._indent = text[: len(text) - len(text.lstrip())]
            if _NO_PASTE.match(text.lstrip()):
                self._indent = ""
        if self._indent and is_whole and text.strip():
            # All of a pasted log is indented, or none: the first line without ends it.
            if text.startswith(self._indent):
                text = text[len(self._indent) :]
            else:
                self._indent = ""
        if not self._is_known and ":" in text:
            self._learn(text)
        if self._shape is None:
            return text
        found = self._shape.match(text)
        return text[found.end() :] if found else text

    def _learn(self, text: str) -> None:
        found = _KNOWN.search(text[:_MAX_SEARCH])
        if found is None:
            return
        margin = text[: found.start()]
        if _READ_LATER.match(margin) or margin.endswith(('"', "'")):
            return
        self._is_known = True
        if 0 < len(margin) <= _MAX_WIDTH:
            self._shape = regex.compile(_shape(margin))


def _shape(margin: str) -> str:
    """Numbers and names with numbers may vary, the last blanks may not: they are not indentation."""
    body = margin.rstrip()
    if not body:
        return regex.escape(margin)
    parts = []
    end = 0
    for found in _VARYING.finditer(body):
        # A number is not taken for a program's name, nor a name without a number for one that has one.
        varying = r"\d+" if found[0].isdigit() else r"(?=[^\s\d]{0,100}\d)[\w.@-]+"
        parts += [_literal(body[end : found.start()]), varying]
        end = found.end()
    parts.append(_literal(body[end:]))
    return "".join(parts) + regex.escape(margin[len(body) :])


def _literal(text: str) -> str:
    return r"[ \t]+".join(regex.escape(part) for part in regex.split(r"[ \t]+", text))
