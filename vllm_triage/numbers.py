"""Numbers: what is read of printed ones, however long they are."""

MAX = 1e18
"""What is larger is damage: no log counts so far."""
_MAX_DIGITS = 18


def whole(digits: str) -> int:
    """A whole number; of absurdly many digits the first, as Python reads no more than 4,300 of them."""
    return int(digits[:_MAX_DIGITS])


def sensible(number: float) -> float | None:
    """The number; None for one that is beyond reason, infinite or no number."""
    return number if -MAX <= number <= MAX else None
