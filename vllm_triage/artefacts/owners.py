"""Owners: what keeps the pods of a manifest running, and in which namespace."""

from collections.abc import Iterator, Mapping, Sequence

from vllm_triage.artefacts.observations import Observation, Value, line
from vllm_triage.expressions import expression

# A top-level key, one below `metadata`, and one of an owner's.
_KIND = expression(r"kind: *['\"]?(\w{1,60})['\"]?\s*$")
_BELOW = expression(r"  (name|namespace): *['\"]?([\w.-]{1,253})['\"]?\s*$")
_OWNER = expression(r"  (?:- |  )(kind|name): *['\"]?([\w.-]{1,253})['\"]?\s*$")
_OBJECTS = ("Pod", "Deployment", "StatefulSet", "DaemonSet")


def owners(source: str, texts: Sequence[str], data: object) -> Iterator[Observation]:
    """The one pod, deployment or the like that a manifest describes; nothing of several."""
    known = [one for one in (_of_json(data) if data is not None else _of_yaml(texts)) if one]
    if len(known) == 1:
        yield Observation("run", known[0], {"pod": line(source, 1, texts[0])})


def _of_json(data: object) -> Iterator[dict[str, Value]]:
    items = data.get("items") if isinstance(data, dict) else data
    for one in items if isinstance(items, list) else [data]:
        if not isinstance(one, dict):
            continue
        metadata = one.get("metadata")
        found: Mapping[str, object] = metadata if isinstance(metadata, dict) else {}
        owner = found.get("ownerReferences")
        first = (
            owner[0] if isinstance(owner, list) and owner and isinstance(owner[0], dict) else {}
        )
        yield _values(str(one.get("kind")), {
            "name": str(found.get("name") or ""), "namespace": str(found.get("namespace") or ""),
            "owner_kind": str(first.get("kind") or ""), "owner_name": str(first.get("name") or ""),
        })  # fmt: skip


def _of_yaml(texts: Sequence[str]) -> Iterator[dict[str, Value]]:
    """The objects of a file in block style, as kubectl prints them."""
    known: dict[str, str] = {}
    section = below = ""
    for text in [*texts, "---"]:
        if text.startswith("---"):
            yield _values(known.get("kind", ""), known)
            known = {}
        elif text[:1].strip():
            kind = _KIND.match(text)
            if kind is not None:
                known["kind"] = kind[1]
            section = text.partition(":")[0]
        elif section == "metadata":
            found, owner = _BELOW.match(text), _OWNER.match(text)
            if found is not None:
                known[found[1]] = found[2]
            elif text[2:3].isalpha():
                below = text.strip()
            elif owner is not None and below == "ownerReferences:":
                known.setdefault(f"owner_{owner[1]}", owner[2])


def _values(kind: str, known: Mapping[str, str]) -> dict[str, Value]:
    name = known.get("name", "")
    if kind not in _OBJECTS or not name:
        return {}
    owner = (
        f"{known.get('owner_kind')}/{known.get('owner_name')}" if known.get("owner_name") else ""
    )
    if kind != "Pod":
        owner, name = f"{kind}/{name}", ""
    return {"pod": name, "namespace": known.get("namespace", ""), "owner": owner}
