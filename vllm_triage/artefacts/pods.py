"""Pods as `kubectl describe pod` shows them."""

from collections.abc import Iterator, Sequence

from vllm_triage.artefacts.observations import Observation, Reading, Value
from vllm_triage.expressions import expression
from vllm_triage.lines import Line

_FIELD = expression(
    r"( {0,40})([A-Z][\w .-]{0,60}|[a-z0-9][a-z0-9-]{0,62}):(?: {1,40}(\S.{0,500}))?$"
)
_RELEASE = expression(
    r"vllm[\w./-]{0,80}:v(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?(?:\.post\d{1,3}|rc\d{1,3})?)(?:-\S{0,200})?$"
)
_EVENT = expression(
    r"  (?:Normal|Warning) {1,10}(?P<reason>\w{1,40}) {1,80}\S{1,20}(?: \(x\d{1,9} over \S{1,20}\))? {1,80}\S{1,80} {1,80}(?P<message>\S.{0,4000})"
)
_LACKING = expression(r"Insufficient [\w.-]{1,80}(?:/[\w.-]{1,80})?")
_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/", "nvidia.com/mig-")
_NO_IMAGE = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName")
_MAX_REASON = 200
_SECTIONS = ("Containers", "Init Containers")
_WORDS = ("Command", "Args")
_MAX_WORDS = 500
_MAX_ROW = 8_000
_CONTAINER_INDENT = 2
_FIELD_INDENT = 4


def fits(head: str) -> bool:
    """Tell the description of a pod by its first lines."""
    rows = head.split("\n", 3)
    return (
        len(rows) > 2
        and rows[0].startswith("Name: ")
        and rows[1].startswith("Namespace: ")
        and "\nContainers:" in head
    )


def read(lines: Sequence[Line]) -> Reading:
    """Read the states of a pod's containers: an observation each, the release that an image names, and whether the pod has a node."""
    return Reading((*_containers(lines), *_unscheduled(lines)))


def _unscheduled(lines: Sequence[Line]) -> Iterator[Observation]:
    """A server's pod for which no node was found, as its status and its last event of that sort say."""
    values: dict[str, Value] = {}
    shown: dict[str, Line] = {}
    for line in lines:
        text = line.text.rstrip()[:_MAX_ROW]
        found = _FIELD.match(text)
        event = _EVENT.match(text) if found is None else None
        if found is not None and found[2] == "Name" and not found[1]:
            yield from _pod(values, shown)
            values, shown = {"unit": found[3] or ""}, {}
        elif found is not None and not found[1] and found[2] in ("Status", "Node"):
            values[found[2].lower()] = found[3] or "<none>"
            shown[found[2].lower()] = line
        elif text.strip().startswith(_GPUS) or (
            found is not None and found[2] == "Image" and "vllm" in (found[3] or "")
        ):
            values["image"] = "vllm"
        elif event is not None and event["reason"] == "FailedScheduling":
            lacking = dict.fromkeys(_LACKING.findall(event["message"]))
            values["reason"] = (", ".join(lacking) or event["message"])[:_MAX_REASON].rstrip(".")
            shown["scheduling"] = line
        elif event is not None and event["reason"] in ("Scheduled", "TriggeredScaleUp"):
            shown.pop("scheduling", None)
    yield from _pod(values, shown)


def _pod(values: dict[str, Value], shown: dict[str, Line]) -> Iterator[Observation]:
    if "scheduling" in shown and values.get("node") == "<none>" and values.get("image"):
        lines = {"scheduling": shown.pop("scheduling"), **shown}
        yield Observation("health", {**values, "scheduling": "failed"}, lines)


class _Container:
    """What a description says of one container, field by field."""

    def __init__(self, name: Line, unit: str | None) -> None:
        self.values: dict[str, Value] = {"container": name.text.strip().rstrip(":")}
        self.shown: dict[str, Line] = {"container": name}
        if unit:
            self.values["unit"] = unit
        self._state = ""
        self._image = ""
        self._words: list[str] = []
        self._started = 0

    def feed(self, indent: int, field: str, value: str, line: Line) -> None:
        """Take one of its fields."""
        if indent == _FIELD_INDENT:
            self._state = field
            if field == "Restart Count" and value.isdecimal():
                self.values["restarts"] = int(value[:9])
            elif field == "Image":
                self._image = value
                if "vllm" in value:
                    self.values["image"] = "vllm"
        # A container that waits to be started again died before, of what its last state says.
        elif self._state == "Last State" or (
            self._state == "State" and "reason" not in self.values
        ):
            if field == "Reason":
                self._put("reason" if self._state == "Last State" else "waiting", value, line)
                if value in _NO_IMAGE and self._image:
                    self.values["value"] = self._image
            elif field == "Exit Code" and value.isdecimal():
                self._put("exit_code", int(value[:9]), line)

    def takes_word(self, text: str, line: Line) -> bool:
        """Take a word of its command or arguments; a description shows one a line."""
        if self._state not in _WORDS or len(text) - len(text.lstrip()) <= _FIELD_INDENT:
            return False
        if len(self._words) < _MAX_WORDS:
            self._words.append(text.strip())
            self._started = self._started or line.number
        return True

    def told(self) -> Iterator[Observation]:
        """Its states, and what its command tells of the server that it runs."""
        yield Observation("health", self.values, self.shown)
        if self._words:
            from vllm_triage.artefacts.manifests import Container, started_with

            name = str(self.values["container"])
            words = tuple(self._words)
            source = self.shown["container"].source
            started = started_with(source, Container(name, "", (), words, self._started))
            if started is not None:
                yield started

    def _put(self, name: str, value: Value, line: Line) -> None:
        self.values[name] = value
        self.shown[name] = line


def _containers(lines: Sequence[Line]) -> Iterator[Observation]:
    unit: str | None = None
    section = ""
    container: _Container | None = None
    for line in lines:
        text = line.text.rstrip()
        found = _FIELD.match(text)
        if container is not None and container.takes_word(text, line):
            continue
        if found is None:
            continue
        indent, field, value = len(found[1]), found[2], found[3] or ""
        if indent <= _CONTAINER_INDENT and container is not None:
            yield from container.told()
            container = None
        if indent == 0:
            section = field
            unit = value if field == "Name" and unit is None else unit
        elif section in _SECTIONS and indent == _CONTAINER_INDENT:
            container = _Container(line, unit)
        elif container is not None:
            container.feed(indent, field, value, line)
            release = _RELEASE.search(value) if field == "Image" else None
            if release is not None:
                yield Observation("run", {"vllm_version": release[1]}, {"vllm_version": line})
    if container is not None:
        yield from container.told()
