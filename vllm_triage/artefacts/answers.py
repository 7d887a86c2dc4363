"""Answers of the server's API, as a client kept them: models, versions, completions.

What a completion says is what a model wrote and never evidence.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from vllm_triage.artefacts.observations import Observation, Reading, Value
from vllm_triage.lines import Line

_MAX_TEXT = 8_388_608
_COMPLETIONS = (
    "text_completion",
    "chat.completion",
    "chat.completion.chunk",
    "response",
)


def fits(head: str) -> bool:
    """Tell a file of nothing but answers, as far as its beginning shows."""
    found = False
    for one in _documents(head.split("\n")):
        if not (_begins_as_one(one) if isinstance(one, str) else _is_known(one)):
            return False
        found = True
    return found


def _begins_as_one(text: str) -> bool:
    """Tell the beginning of an answer that is cut off."""
    beginning = "".join(text[:400].split())
    if beginning.startswith('{"object":"list","data":[{"id":"'):
        return '"object":"model"' in beginning
    return beginning.startswith('{"id":"') and any(
        f'"object":"{name}"' in beginning for name in _COMPLETIONS
    )


def _documents(rows: Sequence[str]) -> Iterator[object]:
    """The JSON objects of a text, one after the other; what is none ends them, as text."""
    text = "\n".join(
        row.strip().removeprefix("data:") for row in rows if row.strip() != "data: [DONE]"
    )
    decoder = json.JSONDecoder()
    at = 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at >= len(text):
            return
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield text[at:]
            return
        yield found if isinstance(found, dict) else text[at:]
        if not isinstance(found, dict):
            return


def _is_known(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    if found.get("object") in _COMPLETIONS and isinstance(found.get("id"), str):
        return True
    if set(found) == {"version"}:
        return isinstance(found["version"], str)
    return bool(_models(found))


def _models(found: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The entries of `/v1/models`; the adapters have a parent."""
    data = found.get("data")
    if found.get("object") != "list" or not isinstance(data, list):
        return []
    return [one for one in data if isinstance(one, dict) and one.get("object") == "model"]


def read(lines: Sequence[Line]) -> Reading:
    """Read the answers of one file; each that names the model or the release is an observation."""
    rows = [line.text for line in lines]
    if sum(map(len, rows)) > _MAX_TEXT:
        return Reading((), "is too long for answers of a server; keep one answer in a file")
    observations = []
    problem = None
    for found in _documents(rows):
        if not isinstance(found, dict):
            problem = "ends in the middle of an answer"
            break
        values = _values(found)
        if values:
            observations.append(Observation("run", values, {"answer": lines[0]}))
    return Reading(tuple(observations), problem)


def _values(found: Mapping[str, object]) -> dict[str, Value]:
    """What an answer tells of the run."""
    out: dict[str, Value] = {}
    version = found.get("version")
    if isinstance(version, str) and version[:1].isdigit():
        out["vllm_version"] = version
    for model in _models(found)[:1]:
        name = model.get("root") or model.get("id")
        if isinstance(name, str) and name:
            out["model"] = name
        length = model.get("max_model_len")
        if isinstance(length, int) and 0 < length < 1_000_000_000:
            out["max_model_len"] = length
    return out
