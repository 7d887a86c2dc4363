"""Releases: which vLLM a run was, where no banner says so.

Only what machines print counts: package listings, image tags of container tools, the names
of installed wheels; and, when none of these is there, on which lines the release has the
statements that the log's code places and tracebacks name. What people write about releases
(changelogs, "works in 0.9.1") has other forms. Statements that contradict each other give none.
"""

import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import regex

from vllm_triage.expressions import expression
from vllm_triage.lines import Key, Line
from vllm_triage.tables import folder
from vllm_triage.tracebacks import Frame, frame
from vllm_triage.versions import parse

Origin = Literal["banner", "package", "image", "code"]

WORDS = 10
"""So many characters of a record's message tell which statement printed it."""
_MAX_PLACES = 512
_ENOUGH = 5
_RELEASE = r"(?P<release>\d{1,3}\.\d{1,3}(?:\.\d{1,3}){0,2}(?:[.+-]?[A-Za-z][\w.+]{0,80})?)"
_SINGLE = expression(rf"v?{_RELEASE}\s*$")
_SHOWN = expression(rf"Version: {_RELEASE}\s*$")
# pip and conda listings, alone or in an environment dump; pip freeze.
_LISTED = expression(
    rf"(?:\[(?:pip3|conda)\] )?vllm(?:-cpu)?(?:==| {{2,}}){_RELEASE}(?:\s+(?:pypi_0|pypi|/|#).*)?\s*$"
    rf"|\[conda\] vllm +{_RELEASE}\s"
    rf"|vLLM Version *: {_RELEASE}(?:@|\s|$)"
)
# pip's own words, an installed wheel's folder, a console script's stub.
_INSTALLED = expression(
    rf"(?:^|[/\\\s])vllm(?:_cpu)?-{_RELEASE}(?:\.dist-info|-(?:cp|py)\d+-[\w.-]{{1,80}}\.(?:whl|egg)\b|-py[\d.]+-[\w.-]{{1,80}}\.egg\b)"
    rf"|^Successfully installed .{{0,9000}}?\bvllm-{_RELEASE}(?:\s|$)"
    rf"|\bload_entry_point\('vllm=={_RELEASE}'"
    rf"|^vllm {_RELEASE} requires \S"
)
_IMAGE = expression(
    r"(?:^\s*(?:- )?\"?[Ii]mage\"?: {0,80}|^[0-9a-f]{12} {1,80}|Pull(?:ing|ed) (?:from |image )|pulled image |"
    r"Container image |newer image for |up to date for |find image |^.{0,40}(?:docker|podman|nerdctl) (?:run|pull) .{0,2000}?)"
    r"[\"']?(?:[\w.:-]{1,100}/){0,3}(?:vllm-openai(?:-\w{1,40})?|vllm-cpu-release-repo):v"
    rf"{_RELEASE}(?=[\"'\s,\\@-]|$)"
)
_ASKED = (
    "vllm --version",
    "vllm -v",
    "vllm.__version__)",
    "vllm.__version__)'",
    'vllm.__version__)"',
)


class Place(NamedTuple):
    """A statement that the log names, and the line on which it stands."""

    file: str
    name: str
    line: int


class Table(NamedTuple):
    """On which line each release has a known statement; a row begins with its first release."""

    releases: tuple[str, ...]
    sites: dict[str, dict[str, list[int]]]


def path() -> Path:
    """The table's file: the wheel's own copy, else the checkout's."""
    return folder() / "code-places.json"


@cache
def table() -> Table:
    """The table, read when the first run without a stated release is told."""
    import json

    data = json.loads(path().read_text("utf-8"))
    return Table(tuple(data["releases"]), data["sites"])


def site(text: str) -> str:
    """The short name of a statement: of its message's first words, or its function and source."""
    return f"{zlib.crc32(text.encode('utf-8', 'replace')) & 0xFFFF:x}"


class Release:
    """What a run's log says of the release that printed it."""

    __slots__ = ("_awaited", "_frame", "_known", "_others", "_places", "source", "stated")

    def __init__(self, stated: str | None = None, source: Origin | None = None) -> None:
        self.stated = stated
        self.source = source
        self._others = False
        self._places: set[Place] = set()
        self._awaited: regex.Pattern[str] | None = None
        self._frame: tuple[object, Frame] | None = None
        self._known: tuple[int, str | None] = (0, None)

    @property
    def version(self) -> str | None:
        """The release, as printed or as the code places tell it."""
        return self.stated or self._inferred()

    @property
    def version_from(self) -> Origin | None:
        """What says so; None when nothing does."""
        return self.source or ("code" if self.version else None)

    @property
    def is_open(self) -> bool:
        """Whether more lines can tell more."""
        return self.source != "banner"

    def banner(self, version: str) -> None:
        """The server's own word, which wins."""
        self.stated, self.source = version, "banner"
        self._places.clear()

    def engine(self, version: str) -> None:
        """The engine's word, in its first record and in what it dumps when it fails."""
        if self.source != "banner":
            self.banner(version)

    def image(self, version: str) -> None:
        """The tag of the image that a shown command starts."""
        self._state(version.partition("-")[0], "image")

    def package(self, version: str) -> None:
        """The release that is installed, as a listing of packages or a server's answer says."""
        self._state(version, "package")

    def after(self) -> "Release":
        """What a later run in the same place begins with: the packages stay."""
        if self.source in ("package", "image"):
            return Release(self.stated, self.source)
        return Release()

    def feed(self, line: Line) -> None:
        """Take one line of the log, never one of a request."""
        text = line.text
        if self._awaited is not None or "vllm" in text or "vLLM V" in text:
            self._packages(line, text)
        if len(self._places) >= _MAX_PLACES:
            return
        if self._frame is not None and self._frame[0] == line.key:
            found = self._frame[1]
            self._frame = None
            self._places.add(_place(found, text))
        if line.place is not None:
            file, _, number = line.place.rpartition(":")
            if file.endswith(".py") and number.isdecimal() and text[:1].isalnum():
                name = file.rpartition("/")[2]
                self._places.add(Place(name, site(text[:WORDS]), int(number[:9])))
        inner = own_frame(text)
        if inner is not None:
            self._frame = (line.key, inner)

    def inside(self, key: Key, text: str, own: Frame | None) -> bool:
        """Take an indented line that names no package, with the frame of vLLM's that it is.

        False, and nothing taken, where it may go on from what was said before.
        """
        if self._awaited is not None:
            return False
        if len(self._places) >= _MAX_PLACES:
            return True
        if self._frame is not None and self._frame[0] == key:
            self._places.add(_place(self._frame[1], text))
            self._frame = None
        if own is not None:
            self._frame = (key, own)
        return True

    def _packages(self, line: Line, text: str) -> None:
        awaited, self._awaited = self._awaited, None
        plain = line.level is None and line.place is None and line.process is None
        if plain and awaited is not None:
            found = awaited.match(text)
            if found:
                self._state(found["release"], "package")
                return
        if text.startswith("Name: vllm"):
            self._awaited = _SHOWN if plain and text.rstrip() == "Name: vllm" else None
        elif text.rstrip().endswith(_ASKED):
            self._awaited = _SINGLE
        elif plain and (found := _LISTED.match(text)):
            self._state(found["release"], "package")
        elif "vllm-" in text and ":v" in text and (found := _IMAGE.search(text)):
            self.image(found["release"])
        elif found := _INSTALLED.search(text):
            self._state(found["release"], "package")

    def _state(self, version: str, source: Origin) -> None:
        """Keep a package's release; two that differ cancel each other."""
        number = parse(version)
        # Builds of a checkout without tags call themselves 0.1.dev1.
        if self.source == "banner" or number is None or number < (0, 1, 1):
            return
        if self.stated is None and not self._others:
            self.stated, self.source = version, source
        elif parse(self.stated) != number:
            self.stated, self.source, self._others = None, None, True

    def _inferred(self) -> str | None:
        if len(self._places) < 2:
            return None
        if self._known[0] != len(self._places):
            self._known = (len(self._places), newest(self._places))
        return self._known[1]


def names_package(text: str) -> bool:
    """Tell whether a text may name an installed vLLM or its image."""
    return ("vllm" in text or "vLLM V" in text) and bool(
        text.startswith("Name: vllm")
        or text.rstrip().endswith(_ASKED)
        or _LISTED.match(text)
        or ("vllm-" in text and ":v" in text and _IMAGE.search(text))
        or _INSTALLED.search(text)
    )


def own_frame(text: str) -> Frame | None:
    """The frame of vLLM's own code that a line is."""
    if "/vllm/" in text and 'File "' in text:
        inner = frame(text)
        if inner is not None and inner.file.startswith("vllm/"):
            return inner
    return None


def _place(found: Frame, text: str) -> Place:
    """The statement in the source line under a frame."""
    return Place(found.file, site(f"{found.function} {text.strip()}"), found.line)


def newest(places: Iterable[Place]) -> str | None:
    """The newest release that has the known statements on the lines that the log names.

    Statements of at least two files must be known, and the releases that fit all of them must
    be of one minor series. A statement on a line where no release has it speaks of a patched or
    an unreleased vLLM: it leaves only the releases without it, and needs five others that agree.
    """
    releases, sites = table()
    fitting = set(range(len(releases)))
    agreeing: list[str] = []
    is_odd = False
    for file, name, number in places:
        row = sites.get(file, {}).get(name)
        if row is None:
            continue
        lines = dict(enumerate(row[1:], row[0]))
        here = {index for index, line in lines.items() if line == number}
        if here:
            agreeing.append(file.rpartition("/")[2])
            fitting &= here
        else:
            is_odd = True
            fitting -= {index for index, line in lines.items() if line}
    if len(set(agreeing)) < 2 or (is_odd and len(agreeing) < _ENOUGH):
        return None
    series = {(parse(releases[index]) or ())[:2] for index in fitting}
    return releases[max(fitting)] if len(series) == 1 else None
