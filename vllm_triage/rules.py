"""Rules: what a pattern file may say. The format is described in `patterns/README.md`."""

from collections.abc import Callable
from math import inf
from typing import Annotated, Any, Literal

from vllm_triage.kinds import Confidence, Kind, Level, Phase, Risk, Role, Severity
from vllm_triage.plain import Plain


class Limit:
    """What pydantic is to hold a field of a user's file to, in the words of its core schema."""

    def __init__(self, **limits: object) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """The field's schema with these limits; pydantic asks for it."""
        return {**handler(source), **self._limits}


_Text = Annotated[str, Limit(min_length=1)]
_Name = Annotated[str, Limit(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
_Version = Annotated[str, Limit(pattern=r"^\d+\.\d+(\.\d+)?(\.?(post|rc|dev)\d+)?$")]


class Form(Plain):
    """One way to write a step's command, and the vLLM releases that accept it."""

    since: _Version | None = None
    """The first release that accepts it."""
    until: _Version | None = None
    """The last release that accepts it."""
    command: _Text | None = None
    """A command template."""
    change: dict[str, str] = {}
    """Flags to set, `"--flag" = "value"`; an empty value is a bare flag, `"-"` removes the flag."""


class Verify(Plain):
    """How to see that the remedy worked, in some vLLM releases."""

    since: _Version | None = None
    """The first release for which it holds."""
    until: _Version | None = None
    """The last release for which it holds."""
    text: _Text
    """A full sentence that names a line of the log, a command or a metric."""


class Fix(Plain):
    """One step towards the remedy."""

    do: _Text
    """Imperative, one thing, a full sentence."""
    command: _Text | None = None
    """A command template, the same for every release."""
    change: dict[str, str] = {}
    """Flags to set on the user's own command."""
    form: tuple[Form, ...] = ()
    """Commands that differ by release, oldest first; instead of `command` and `change`."""
    why: _Text | None = None
    """Half a line: why it helps, or why it differs from what is documented."""
    risk: Risk = Risk.RESTART
    """What the step does to the system."""
    since: _Version | None = None
    """The first release for which the step makes sense."""
    until: _Version | None = None
    """The last release for which the step makes sense."""
    documented: bool = False
    """Whether it is one of the documented steps."""
    documented_as: _Text | None = None
    """The documented command where it differs from the one shown."""
    docs: _Text | None = None
    """An address with more about it."""
    needs: tuple[_Text, ...] = ()
    """Facts that the log must state for the step to be shown."""
    unless: tuple[_Text, ...] = ()
    """Facts with which the step is not shown."""
    where: dict[str, tuple[_Text, ...]] = {}
    """Values of facts: where the log states the fact, it must be one of these."""
    ruled_out: dict[str, _Text] = {}
    """Facts that make the step useless, `name` or `name=value`, and half a line that says why."""


class Pattern(Plain):
    """One thing a log says."""

    name: _Name
    """Kebab-case: what the log says, never the cure."""
    keywords: tuple[_Text, ...] = ()
    """Plain texts, case-sensitive; each must be in an event's text before the regex is tried."""
    any_of: tuple[_Text, ...] = ()
    """Plain texts, case-sensitive; one of them must be in an event's text too."""
    regex: str = ""
    """Searched in an event's text; `^` and `$` match at line ends; named groups are facts."""
    artefact: Literal["metrics", "benchmark", "gpu", "environment", "model", "health"] | None = (
        None
    )
    """Of what an observation must be, instead of a regex: its values are judged, not a text."""
    level: Level = Level.ERROR
    """The least logging level of a line that may match; a line without level always may."""
    origin: Literal["any", "log", "access", "statistics", "kernel"] = "log"
    """Which sort of line may match."""
    when: Phase | None = None
    """The phase the server must have been in; a phase that the log does not show passes."""
    needs: tuple[_Name, ...] = ()
    """Facts that the run or the frames must show, such as `quantization`."""
    exception: tuple[_Text, ...] = ()
    """Exception classes, without module; the event must be one of them."""
    raised_in: tuple[_Text, ...] = ()
    """Globs, `vllm/config/*` or `vllm/utils.py:run`; the innermost frame must match one."""
    frames: tuple[_Text, ...] = ()
    """Globs; any frame of the traceback must match one."""
    at_least: dict[str, float | str] = {}
    """Least values of captured numbers; a text names a threshold, until the catalogue has put its number there."""
    at_most: dict[str, float | str] = {}
    """Greatest values of captured numbers, or names of thresholds."""
    equals: dict[str, tuple[_Text, ...]] = {}
    """Texts of which an observation's value must be one."""
    times: Annotated[int, Limit(ge=1)] = 1
    """How many lines in a row must match."""
    severity: Severity | None = None
    """Overrides the rule's."""
    role: Role | None = None
    """Overrides the rule's."""
    confidence: Confidence = Confidence.CERTAIN
    """How sure the kind is when this pattern matches."""
    facts: dict[str, str | float] = {}
    """Facts that the wording implies without stating them."""
    printed_by: _Text
    """The package that prints the line: vllm, torch, nccl, ray, kernel, ..."""
    file: _Text | None = None
    """The source file in that package."""
    since: _Version | None = None
    """The first release of that package known to print it."""
    until: _Version | None = None
    """The last release of that package known to print it."""
    hits: Annotated[tuple[_Text, ...], Limit(min_length=1)]
    """Lines as printed that must match."""
    misses: Annotated[tuple[_Text, ...], Limit(min_length=1)]
    """The nearest innocent lines."""

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The least and the greatest value of each number that has bounds."""
        names = dict.fromkeys((*self.at_least, *self.at_most))
        return {
            name: (float(self.at_least.get(name, -inf)), float(self.at_most.get(name, inf)))
            for name in names
        }


class Variant(Plain):
    """A kind told from another by the run, not by its words."""

    of: Kind
    """The kind whose matches become this kind."""
    when: Phase | None = None
    """The phase in which they do."""
    needs: tuple[_Name, ...] = ()
    """Facts that the run or the frames must show."""
    hits: Annotated[tuple[_Text, ...], Limit(min_length=1)]
    """Whole excerpts that become this kind."""
    misses: Annotated[tuple[_Text, ...], Limit(min_length=1)]
    """Excerpts that stay the other kind."""


class Rule(Plain):
    """A kind: what it means, how it is recognised, what to do."""

    title: _Text
    """What broke, at most 70 characters; may hold placeholders."""
    caused_title: _Text | None = None
    """The title where the cause is known, when the other would not be true; without placeholders."""
    severity: Severity
    """How much of the service is lost."""
    role: Role = Role.CAUSE
    """Where it stands in the story."""
    summary: _Text
    """What happened, one or two sentences."""
    cause: _Text
    """Why it happens."""
    docs: tuple[_Text, ...] = ()
    """Addresses of documentation."""
    explained_by: tuple[_Text, ...] = ()
    """Kinds, or areas as `gpu.*`, that are the cause when both are in a log."""
    symptom: _Text | None = None
    """The symptom as documented."""
    verify: _Text | Annotated[tuple[Verify, ...], Limit(min_length=1)] | None = None
    """How to see that the remedy worked; a list where it differs by release, oldest first."""
    collect: tuple[_Text, ...] = ()
    """What to collect when the log does not show the cause."""
    variant: Variant | None = None
    """Set when the kind is told from another by the run."""
    fix: Annotated[tuple[Fix, ...], Limit(min_length=1)]
    """Steps in order."""
    pattern: tuple[Pattern, ...] = ()
    """What the log says."""

    @property
    def worded(self) -> tuple[Pattern, ...]:
        """The patterns that look at what a log says."""
        return tuple(one for one in self.pattern if one.artefact is None)

    @property
    def judging(self) -> tuple[Pattern, ...]:
        """The patterns that judge what an artefact shows."""
        return tuple(one for one in self.pattern if one.artefact is not None)

    @property
    def verify_texts(self) -> tuple[str, ...]:
        """The texts of `verify`, whatever the release."""
        if self.verify is None or isinstance(self.verify, str):
            return (self.verify,) if self.verify else ()
        return tuple(form.text for form in self.verify)


class Extension(Plain):
    """What a user's file adds to a built-in kind: a rule without title."""

    fix: tuple[Fix, ...] = ()
    """Steps that come before the built-in ones."""
    pattern: tuple[Pattern, ...] = ()
    """Further things a log says."""

    def extended(self, rule: Rule) -> Rule:
        """The rule with these patterns and steps."""
        return rule.model_copy(
            update={"pattern": (*rule.pattern, *self.pattern), "fix": (*self.fix, *rule.fix)}
        )


class Topic(Plain):
    """A reference page that belongs to kinds."""

    title: _Text
    """The heading."""
    text: _Text
    """The explanation."""
    kinds: tuple[Kind, ...] = ()
    """The kinds whose reports point here."""
    columns: tuple[_Text, ...] = ()
    """A table's headings."""
    rows: tuple[tuple[str, ...], ...] = ()
    """A table's rows."""
    fix: tuple[Fix, ...] = ()
    """Steps in order."""
    docs: tuple[_Text, ...] = ()
    """Addresses of documentation."""
