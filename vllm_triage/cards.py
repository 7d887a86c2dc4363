"""Cards: which GPUs hold a model's weights."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from vllm_triage.tables import table

# What vLLM may use of a card by default; the rest is for CUDA itself.
_SHARE = 0.9
_FOUR_BITS = 0.5
NVIDIA = "nvidia"
_WIDTHS = {4.0: "32 bits", 2.0: "16 bits", 1.0: "8 bits", 0.5: "4 bits", 0.25: "2 bits"}


class Card(NamedTuple):
    """A GPU: decimal gigabytes, and the most of them that are worth naming."""

    name: str
    gigabytes: float
    most: int


@cache
def known_cards(make: str = NVIDIA) -> tuple[Card, ...]:
    """The cards of a make in `patterns/cards.toml`, smallest first."""
    cards = [one for one in table("cards")["card"] if one.get("make", NVIDIA) == make]
    return tuple(Card(one["name"], one["gigabytes"], one["most"]) for one in cards)


def count_holding(weights_bytes: float, card: Card) -> int | None:
    """The least power of two of a card that holds the weights: weights <= 0.9 * count * card.

    A power of two divides the attention heads of most models. None for more than `card.most`.
    """
    count = 1
    while weights_bytes > _SHARE * count * card.gigabytes * 1e9:
        count *= 2
        if count > card.most:
            return None
    return count


def holding(weights_bytes: float, cards: Sequence[Card]) -> tuple[tuple[int, Card], ...]:
    """The cards that hold the weights and how many of each: at most two sorts.

    From the smallest card up, each only where fewer are needed than of the one before.
    """
    out: list[tuple[int, Card]] = []
    for card in cards:
        count = count_holding(weights_bytes, card)
        if count is not None and (not out or count < out[-1][0]):
            out.append((count, card))
    return tuple(out[-2:])


def sentence(weights_bytes: float | None, width: float | None, make: str = NVIDIA) -> str | None:
    """Which cards of a make hold weights of a number of bytes, at a width in bytes per parameter.

    Wider than four bits also what they take as AWQ or GPTQ: weights * 0.5 / width.
    None when the bytes are not known.
    """
    if not weights_bytes or weights_bytes < 0:
        return None
    how = f" in {_WIDTHS[width]}" if width in _WIDTHS else ""
    text = f"The weights alone need about {_gigabytes(weights_bytes)}{how}: {_named(weights_bytes, make)}"
    if width is not None and width > _FOUR_BITS:
        smaller = weights_bytes * _FOUR_BITS / width
        text += f"; as AWQ or GPTQ about {_gigabytes(smaller)}: {_named(smaller, make)}"
    return text + "."


def _gigabytes(size: float) -> str:
    number = size / 1e9
    return f"{number:.0f} GB" if number >= 10 else f"{number:.1f} GB"


def _named(weights_bytes: float, make: str) -> str:
    cards = known_cards(make)
    found = holding(weights_bytes, cards)
    if not found:
        return f"more than {cards[-1].most}x {cards[-1].name}"
    return " or ".join(f"{count}x {card.name}" for count, card in found)
