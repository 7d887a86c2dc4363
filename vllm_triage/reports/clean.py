"""Text from logs made harmless for a terminal."""

from vllm_triage.expressions import expression

# C0 and C1 controls, the marks that reverse or isolate the direction of text, the separators that
# some terminals and viewers take for line ends, and halves of characters that no encoding holds.
_CONTROL = expression(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_BLANK = str.maketrans("\t\n\r\x0b\x0c", "     ")
_ESCAPED = expression(
    r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]"
)


def clean(text: str) -> str:
    """Replace control characters; tabs and line ends become blanks."""
    return _CONTROL.sub("\ufffd", text.translate(_BLANK))


def escaped(json: str) -> str:
    """JSON with every control character as an escape, so that it can be shown and loses nothing."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


def located(source: str, line: int) -> str:
    """`file:line` with the file's last two parts at most."""
    parts = source.replace("\\", "/").split("/")
    return f"{'/'.join(parts[-2:]) if len(parts) > 2 else source}:{line}"
