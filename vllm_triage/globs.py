"""Globs: `vllm/config/*` and the like, told without compiling a regex for each."""

from fnmatch import fnmatchcase


def fits(text: str, glob: str) -> bool:
    """Tell whether a whole text is as a glob says; as `fnmatch.fnmatchcase` does."""
    if "?" in glob or "[" in glob:
        return fnmatchcase(text, glob)
    first, *rest = glob.split("*")
    if not rest:
        return text == glob
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if end < at or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
