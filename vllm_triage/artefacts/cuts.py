"""Cuts: what a file may be taken for whose last line has no end, as that of a copy that was cut off."""

from collections.abc import Callable, Sequence

from vllm_triage.artefacts.observations import Observation, Reading, Value
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_Read = Callable[[Sequence[Line]], Reading]
# A line of `ip addr`, `ip -br addr` or `ifconfig` that ends in an address, a list of flags or a name.
_PART = expression(
    r"(?:(?:inet6?(?: addr:)?|UP|DOWN|UNKNOWN)\b[^\n]{0,200}[ :][\da-fA-F.:]{1,45}|<[A-Z_,]{0,80}|^\d{1,5}:[^\n<]{0,60}|^\S{1,40}\s+[A-Z]{0,9}|\binet6?)$"
)
_OF_VLLM = ("vllm", "ray_vllm")


def scrape(reading: Reading, lines: Sequence[Line], read: _Read) -> Reading:
    """A scrape without its last line: of a number the last digits may be missing."""
    if not lines or not lines[-1].text.startswith(_OF_VLLM):
        return reading
    rest = read(lines[:-1])
    return rest._replace(problem=reading.problem or "its last line has no end and was left out")


def environment(reading: Reading, lines: Sequence[Line], read: _Read) -> Reading:
    """One node's environment or interfaces; the variable of the last line is marked, and a listing whose last line is not whole."""
    found = _marked(reading, lines, 0)
    if not lines or _PART.search(lines[-1].text[:400]) is None:
        return found
    listing: dict[str, Value] = {"listing": "cut"}
    return found._replace(
        observations=tuple(one.with_values(listing) for one in found.observations)
    )


def manifest(reading: Reading, lines: Sequence[Line], read: _Read) -> Reading:
    """The containers of a manifest: what a variable is set to stands on the line below its name."""
    return _marked(reading, lines, 1)


def _marked(reading: Reading, lines: Sequence[Line], below: int) -> Reading:
    last = lines[-1].number - below if lines else 0
    return reading._replace(
        observations=tuple(_with_mark(one, last) for one in reading.observations)
    )


def _with_mark(one: Observation, last: int) -> Observation:
    """`cut` names the variable that the file ends in; empty where it ends in none."""
    if one.subject != "environment":
        return one
    names = [name for name, line in one.lines.items() if name[0].isupper() and line.number >= last]
    return one._replace(values={**one.values, "cut": names[-1] if names else ""})
