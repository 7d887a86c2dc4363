"""vLLM release numbers compared as people read them."""

from vllm_triage.expressions import expression
from vllm_triage.numbers import whole

__version__ = "0.1.0"
"""The release of vllm-triage itself."""

_NUMBER = expression(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?(?:post|rc|dev)(\d+))?")


def parse(text: str | None) -> tuple[int, int, int] | None:
    """Read `0.10.2`, `v0.7.4.dev49+gc0dd` or `0.33` as three numbers; None when there is none."""
    found = _NUMBER.match(text.strip()) if text else None
    if found is None:
        return None
    major, minor, patch, _ = found.groups()
    return whole(major), whole(minor), whole(patch or "0")


def holds(version: str | None, since: str | None, until: str | None) -> bool:
    """Tell whether a release lies in `since`..`until`, both inclusive; an unknown one always does."""
    number = parse(version)
    if number is None:
        return True
    first, last = parse(since), parse(until)
    return (first is None or number >= first) and (last is None or number <= last)


def span(since: str | None, until: str | None) -> str | None:
    """Write an interval for people: `>=0.9`, `<=0.8.0`, `0.4.3 - 0.8.0`; None when it is open."""
    if since and until:
        return f"{since} - {until}"
    if since:
        return f">={since}"
    return f"<={until}" if until else None
