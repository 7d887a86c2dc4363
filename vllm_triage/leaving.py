"""Leaving: what may leave of a log's texts, which is without secrets and users' texts."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from vllm_triage.expressions import expression
from vllm_triage.prompts import PromptFilter
from vllm_triage.redact import REDACTED, redact

Redact = Callable[[str], str]
_MAX_KEPT = 512
# A shorter value may stand in a secret by chance.
_MIN_PART = 6
_WORD = expression(r"[^\s'\"(),;:=&@\[\]{}<>\\]{8,4000}")


@lru_cache(_MAX_KEPT)
def leaving(text: str) -> str:
    """The text without prompts, answers, tokens, keys and passwords; of several lines, each alone."""
    if "\n" not in text:
        return redact(PromptFilter()(text))
    prompts = PromptFilter()
    return redact("\n".join(map(prompts, text.split("\n"))))


class Veil:
    """Takes out of an incident's values what was taken out of the texts that they come from.

    A value was cut out of its line: what makes it a secret may stand only there.
    """

    def __init__(self, redact: Redact, texts: Iterable[str]) -> None:
        self._redact = redact
        pairs = ((text, redact(text)) for text in texts)
        self._pairs = [(text, shown) for text, shown in pairs if text != shown]
        self._words = {
            word
            for text, shown in self._pairs
            for word in _WORD.findall(text)
            if word not in shown
        }

    def __call__(self, text: str) -> str:
        """The text as it may leave."""
        shown = self._redact(text)
        if len(shown) >= _MIN_PART and any(shown in before and shown not in after for before, after in self._pairs):  # fmt: skip
            return REDACTED
        for word in self._words:
            if word in shown:
                shown = shown.replace(word, REDACTED)
        return shown

    def of(self, value: Any) -> Any:
        """The same of every text in a value."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {name: self.of(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.of, value))
        return value
