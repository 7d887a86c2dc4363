"""Text from logs made harmless for a terminal."""

from typing import TYPE_CHECKING

from vllm_triage.expressions import expression

if TYPE_CHECKING:
    import regex

# Marks that reverse or isolate the direction of text, that take no room, or that some viewers
# take for line ends; halves of characters that no encoding holds.
_UNSEEN = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U000e0000-\U000e0fff"
)
# C0 and C1 controls too.
_CONTROL = expression(rf"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_UNSEEN}]")
_BLANK = str.maketrans("\t\n\r\x0b\x0c", "     ")
_ESCAPED = expression(rf"[\x7f-\x9f{_UNSEEN}]|(?<=##)\[|(?<=##v)s(?=o\[)|(?<=##t)e(?=amcity\[)")
# What a CI runner takes for a command wherever it stands in a line, and at the start of one.
_COMMAND = expression(r"##(?=(?:vso|teamcity)?\[)")
_FIRST = expression(r"(?m)^((?:\x1b\[[0-9;]{0,9}m|[^\S\n])*+)::(?=[a-z])")


def clean(text: str) -> str:
    """Replace control characters and marks that nobody sees; tabs and line ends become blanks."""
    return _COMMAND.sub("## ", _CONTROL.sub("\ufffd", text.translate(_BLANK)))


def inert(page: str) -> str:
    """A page of which no row is a command to a CI runner that shows it."""
    return _FIRST.sub(r"\1: :", page) if "::" in page else page


def escaped(json: str) -> str:
    """JSON with what `clean` takes out as escapes, so that it can be shown and loses nothing."""
    return _ESCAPED.sub(_escape, json)


def _escape(found: "regex.Match[str]") -> str:
    number = ord(found[0])
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


def located(source: str, line: int) -> str:
    """`file:line` with the file's last two parts at most."""
    parts = source.replace("\\", "/").split("/")
    return f"{'/'.join(parts[-2:]) if len(parts) > 2 else source}:{line}"
