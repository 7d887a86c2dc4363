"""Echo reader: echoed commands found in a log line by line, also over several lines."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_triage.echoes import LONG, MAX_TEXT, START, Echo, first_argument, parse
from vllm_triage.expressions import expression

_LIST = expression(r"\s*(?:-\s*)?(?:args|command|entrypoint): *(\[.*)")
_BLOCK = expression(r"\s*(?:-\s*)?(?:args|command|entrypoint): *$")
_ITEM = expression(r"\s*- +(\S.*?) *$")
# `command: --model org/name`, on its line or folded into those below.
_ARGUMENTS = expression(r"\s*(?:args|command): *(['\"]?--[a-z].*)")
_FOLDED = expression(r"(\s*)(?:args|command): *([>|])[+-]?")
# What reads a pasted log may have taken the bar for a frame's.
_FOLDED_ITEM = expression(r"(\s*)-(?: {1,9}([>|])[+-]?)?")


class _Folded(NamedTuple):
    """A text of a manifest that goes over several lines."""

    indent: int
    """That of its key: what is indented more belongs to it."""
    text: str = ""
    """Its last command, as far as it goes."""
    is_literal: bool = False
    """Whether a line is a command of its own, unless it goes on with the one before."""

    def with_line(self, line: str) -> "_Folded | None":
        """With one line more; None where the text has ended."""
        words = line.strip()
        is_inside = words and len(line) - len(line.lstrip()) > self.indent
        if not is_inside or len(self.text) + len(words) > MAX_TEXT:
            return None
        is_new = self.is_literal and not (self.text.endswith("\\") or words.startswith("-"))
        before = "" if is_new else self.text.removesuffix("\\").rstrip()
        return self._replace(text=f"{before} {words}".lstrip())


class EchoReader:
    """Finds echoes in a log line by line: continued lines and lists of a manifest included."""

    def __init__(self) -> None:
        self._continued = ""
        self._items: list[str] | None = None
        self._folded: _Folded | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the next line may continue an echo."""
        return bool(self._continued) or self._items is not None or self._folded is not None

    def feed(self, text: str) -> Echo | None:
        """Take a line without level; give the echo that it completes, or adds to."""
        if self._items is not None:
            return self._item(text)
        if self._folded is not None:
            self._folded = self._folded.with_line(text)
            if self._folded is not None:
                return _arguments(self._folded.text.removesuffix("\\"))
        if self._continued:
            text = self._continued + text.lstrip().removeprefix("> ")
            self._continued = ""
        if text.rstrip().endswith("\\") and START.match(text):
            self._continued = text.rstrip()[:-1][:MAX_TEXT]
            return None
        if "args:" in text or "command:" in text or "entrypoint:" in text:
            if _BLOCK.fullmatch(text):
                self._items = []
                return None
            found = _LIST.fullmatch(text[:MAX_TEXT])
            if found is not None:
                return _listed(_words(found[1]))
            found = _ARGUMENTS.fullmatch(text[:MAX_TEXT].rstrip())
            if found is not None:
                return _arguments(_unquoted(found[1]))
            found = _FOLDED.fullmatch(text[:MAX_TEXT].rstrip())
            if found is not None:
                self._folded = _Folded(len(found[1]), is_literal=found[2] == "|")
                return None
        return parse(text)

    def _item(self, text: str) -> Echo | None:
        folded = _FOLDED_ITEM.fullmatch(text[:1024].rstrip())
        if folded is not None:
            self._items = None
            self._folded = _Folded(len(folded[1]), is_literal=folded[2] != ">")
            return None
        found = _ITEM.fullmatch(text[:1024])
        if found is None or self._items is None or len(self._items) > 200:
            self._items = None
            return self.feed(text) if found is None else None
        self._items.append(_unquoted(found[1]))
        return _listed(self._items)


def _arguments(text: str) -> Echo | None:
    """The echo of a container's command written as a shell's, whole or the arguments alone."""
    if not text.startswith("--"):
        return parse(text)
    found = parse(f"vllm serve {text}")
    return _listed(found.words[found.first :]) if found is not None else None


def _words(text: str) -> list[str]:
    import json

    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [str(word) for word in found] if isinstance(found, list) else []


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _listed(items: Sequence[str]) -> Echo | None:
    """The `args:` of a container: a whole command, or the arguments of the image's own."""
    if items and items[0].rpartition("/")[2] in ("sh", "bash") and len(items) > 2:
        return parse(" ".join(items[2].split()))
    words = list(_flattened(items))
    first = first_argument(words)
    if first is not None:
        return Echo(tuple(words), first)
    if not any(LONG.fullmatch(word) for word in words) or not (
        words[0].startswith("--") or (len(words) > 1 and words[1].startswith("--") and "/" in words[0])
    ):  # fmt: skip
        return None
    echo = Echo(("vllm", "serve", *words), 2)
    if "--model" in words and words.index("--model") + 1 < len(words):
        place = words.index("--model")
        own = [words[place + 1], *words[:place], *words[place + 2 :]]
        return Echo(("vllm", "serve", *own), 2)
    return echo if not words[0].startswith("-") else None


def _flattened(items: Sequence[str]) -> Iterator[str]:
    """A manifest's `--flag=value` as it is, its `--flag value` in one item as two words."""
    for item in items:
        if item.startswith("--") and " " in item and "=" not in item.split(" ", 1)[0]:
            flag, _, value = item.partition(" ")
            yield from (flag, _unquoted(value.strip()))
        else:
            yield item
