"""Escapes: what terminals, daemons, web pages and editors make of a program's signs, undone."""

from vllm_triage.expressions import expression

_MAX_ROWS = 2_000
_ANSI = expression(
    r"(?:\x1b|\\x1b|\\u001b|\\033|#033|\^\[)(?:\[[0-9;:?<=>]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,300}(?:\x07|\x1b\\|$)|[@-Z\\-_])"
)
_LOST_ESCAPE = expression(r"\[\d{1,3}(?:;\d{1,3}){0,4}m")
_ENTITY = expression(r"&(?:quot|lt|gt|amp|#x?\d{2,3});")
_QUOTES = {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'"}
_AS_QUOTED = str.maketrans(_QUOTES)
AS_TYPED = str.maketrans({
    **dict.fromkeys("\u201e\u201f\u00ab\u00bb\u2033\uff02", '"'), **dict.fromkeys("\u201a\u201b\u2032\uff07", "'"), **_QUOTES,
    **dict.fromkeys("\u00a0\u2007\u2009\u202f", " "), **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"), "\u2014": "--",
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", None), "\uff1a": ":", "\uff1d": "=",
})  # fmt: skip
"""What editors, chats and mail make of a keyboard's quotes, blanks and dashes, for `str.translate`."""


def without_escapes(text: str) -> str:
    """Take terminal sequences out, also those that a logger spelt out (`#033[`, `^[[`)."""
    if "\x1b" in text or "033" in text or "^[" in text or "1b[" in text:
        text = _ANSI.sub("", text)
    return _LOST_ESCAPE.sub("", text) if "[0m" in text or "[0;0m" in text else text


def unescaped(text: str) -> list[str]:
    """The rows of a message whose line ends and tabs a syslog daemon wrote as `#012` and `#011`."""
    return text.replace("#011", "\t").split("#012")[:_MAX_ROWS]


def as_printed(text: str) -> str:
    """Take out terminal sequences, HTML's entities and typographic quotes; dashes and blanks stay."""
    text = without_escapes(text)
    if "&" in text and _ENTITY.search(text):
        import html

        text = html.unescape(text)
    return text.translate(_AS_QUOTED) if _has_quotes(text) else text


def _has_quotes(text: str) -> bool:
    return not text.isascii() and any(quote in text for quote in _QUOTES)


def is_clean(text: str) -> bool:
    """Tell that a text has no terminal sequence, entity or carriage return; sure where it says so."""
    return not (
        "\x1b" in text
        or "033" in text
        or "^[" in text
        or "1b[" in text
        or "[0m" in text
        or "[0;0m" in text
        or "&" in text
        or _has_quotes(text)
        or "\r" in text
    )
