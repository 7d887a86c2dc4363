"""Text from logs made harmless for a terminal."""

import regex

# C0 and C1 controls, and the marks that reverse or isolate the direction of text.
_CONTROL = regex.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


def clean(text: str) -> str:
    """Replace control characters; tabs and line ends become blanks."""
    return _CONTROL.sub("\ufffd", text.replace("\t", " ").replace("\n", " "))


def located(source: str, line: int) -> str:
    """`file:line` with the file's last two parts at most."""
    parts = source.replace("\\", "/").split("/")
    return f"{'/'.join(parts[-2:]) if len(parts) > 2 else source}:{line}"
