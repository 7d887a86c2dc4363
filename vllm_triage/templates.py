"""Texts with placeholders: `{name:fallback}`, `{{` and `}}` for braces."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm_triage.expressions import expression

# A sentence ends where the next one's first word follows, or a placeholder.
_SENTENCE_END = expression(r"(?<=[.!?][`\")]?)\s+(?=[\p{Lu}\d`\"'(]|$)")
_TOKEN = expression(r"\{\{|\}\}|\{([a-z_0-9]+):([^{}]*)\}|[{}]")


class Placeholder(NamedTuple):
    """A name to fill in, and what stands there when nothing is known."""

    name: str
    fallback: str


def parse(template: str) -> tuple[str | Placeholder, ...]:
    """Split a template into literal texts and placeholders.

    Raises ValueError for a brace that is neither doubled nor a placeholder with a fallback.
    """
    parts: list[str | Placeholder] = []
    end = 0
    for found in _TOKEN.finditer(template):
        if found.start() > end:
            parts.append(template[end : found.start()])
        end = found.end()
        if found[1] is not None:
            parts.append(Placeholder(found[1], found[2]))
        elif found[0] in ("{{", "}}"):
            parts.append(found[0][0])
        else:
            message = f"a bare {found[0]} at column {found.start() + 1}: write {{name:fallback}}, or double the brace"
            raise ValueError(message)
    parts.append(template[end:])
    return tuple(part for part in parts if part)


def names(template: str) -> frozenset[str]:
    """The names of a template's placeholders."""
    return frozenset(part.name for part in parse(template) if isinstance(part, Placeholder))


def fill(template: str, values: Mapping[str, str]) -> str | None:
    """Put values, else fallbacks, in place; None when a name has neither."""
    return _joined(parse(template), values)


def filled(texts: Iterable[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Fill texts of which one may hold a brace that is meant; one that cannot be filled is left out."""
    out: list[str] = []
    for text in texts:
        try:
            found = fill(text, values)
        except ValueError:
            found = text
        out += [found] if found else []
    return tuple(out)


def fill_sentences(template: str, values: Mapping[str, str]) -> str:
    """Fill a text; a sentence with a name that has neither value nor fallback is left out.

    The empty text when nothing is left.
    """
    sentences: list[list[str | Placeholder]] = [[]]
    for part in parse(template):
        if isinstance(part, Placeholder):
            sentences[-1].append(part)
            continue
        first, *rest = _SENTENCE_END.split(part)
        sentences[-1].append(first)
        sentences += [[piece] for piece in rest]
    filled = (_joined(parts, values) for parts in sentences)
    return " ".join(text.strip() for text in filled if text and text.strip())


def _joined(parts: Sequence[str | Placeholder], values: Mapping[str, str]) -> str | None:
    out: list[str] = []
    for part in parts:
        text = part if isinstance(part, str) else values.get(part.name) or part.fallback
        if not text and isinstance(part, Placeholder):
            return None
        out.append(text)
    return "".join(out)


def duration(milliseconds: float) -> str:
    """A duration for people, of three digits: `85.3 ms`, `3.18 s`, from a thousand seconds on all digits."""
    rounded = float(f"{milliseconds:.3g}")
    if abs(rounded) < 1000:
        return f"{rounded:g} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.3g} s" if abs(seconds) < 999.5 else f"{seconds:.0f} s"


def counted(count: int, word: str) -> str:
    """A count with its word, `1 line`, `1,204 lines`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
