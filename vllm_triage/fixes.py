"""Fix steps rendered for one run: its release, its values, its own command."""

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from vllm_triage import templates, versions
from vllm_triage.arguments import Value
from vllm_triage.commands import flags_of, is_before_command
from vllm_triage.derived import PLAIN, QUOTED
from vllm_triage.echoes import SERVER_MODULE
from vllm_triage.expressions import expression
from vllm_triage.model import FixStep
from vllm_triage.rules import Fix, Form, Rule, Verify
from vllm_triage.ruling import Proposal, is_so, permits, ruled_out, states
from vllm_triage.tables import table
from vllm_triage.versions import holds, span

Values = Mapping[str, str]
_ByRelease = TypeVar("_ByRelease", Form, Verify)

_SERVE = expression(r"\bvllm serve (?:(?=-)|(\S+))")
# A name that the user must choose, DRAFT_MODEL or NAME; never a value that vLLM spells so.
_STAND_IN = expression(
    r"(?<![\w./-])(?!(?:FLASHINFER|TRITON_ATTN|XFORMERS|DEBUG)\b)[A-Z]{2,}(?:[_/][A-Z]+)*(?![\w./-])"
)


def render_steps(
    rule: Rule,
    values: Values | None,
    version: str | None,
    arguments: Mapping[str, Value] | None = None,
) -> tuple[FixStep, ...]:
    """Render a rule's steps for a release; a step that the release does not know is left out.

    Without values all steps are rendered, as a page shows them; with values only those whose
    `needs` and `unless` hold. A change that the arguments already show is not offered as one.
    """
    return steps(rule.fix, values, version, arguments or {})


def render_verify(rule: Rule, values: Values, version: str | None) -> str | None:
    """Render how to see that the remedy worked; where the release is unknown, the older way too."""
    return _for_make(_verify(rule, values, version), values.get("gpu_make", ""))


def _verify(rule: Rule, values: Values, version: str | None) -> str | None:
    if rule.verify is None:
        return None
    if isinstance(rule.verify, str):
        return templates.fill_sentences(rule.verify, _safe(values)) or None
    known = versions.parse(version) is not None
    fitting = [form for form in rule.verify if holds(version, form.since, form.until)]
    newest = (fitting or _later(rule.verify, version))[-1]
    text = templates.fill_sentences(newest.text, _safe(values)) or None
    if known or len(fitting) < 2 or text is None:
        return text
    older = fitting[-2]
    said = templates.fill_sentences(older.text, _safe(values))
    return f"{text} vLLM {span(older.since, older.until)}: {said}" if said else text


def steps(
    fixes: Sequence[Fix],
    values: Values | None,
    version: str | None,
    arguments: Mapping[str, Value] = MappingProxyType({}),
) -> tuple[FixStep, ...]:
    """Render steps and number them from 1.

    In order, but what this run rules out is left out, or stands last when it is documented.
    """
    shown: list[FixStep] = []
    last: list[FixStep] = []
    for fix in fixes:
        step, against = _step(fix, values, version, arguments)
        if step is not None and against is None:
            shown.append(step)
        elif step is not None and step.documented:
            last.append(_set_aside(step, against or ""))
    return tuple(
        step.model_copy(update={"number": position})
        for position, step in enumerate([*shown, *last], 1)
    )


def _set_aside(step: FixStep, against: str) -> FixStep:
    """A documented step that is of no use for this run: named, not offered."""
    documented_as = step.documented_as or step.command
    return step.model_copy(
        update={
            "command": None, "change": {}, "documented_as": documented_as, "why": f"not here: {against}"
        }
    )  # fmt: skip


def _step(
    fix: Fix, known: Values | None, version: str | None, arguments: Mapping[str, Value]
) -> tuple[FixStep | None, str | None]:
    """A rendered step, and why the run rules it out."""
    if not holds(version, fix.since, fix.until) and not fix.documented:
        return None, None
    values = known or {}
    if known is not None and (
        not all(states(name, values) for name in fix.needs)
        or any(states(name, values) for name in fix.unless)
        or not permits(fix.where, values)
    ):
        return None, None
    form = _form(fix, version)
    if form is None:
        return None, None
    do = templates.fill(fix.do, values)
    if do is None:
        return None, None
    command = templates.fill(form.command, _safe(values)) if form.command else None
    own = flags_of(command, values.get("model", "MODEL"))
    change = _filled_change(form.change, values) or own
    is_flags_only = bool(own) or command in (None, f"vllm serve {values.get('model', 'MODEL')}")
    proposal = Proposal(
        texts=(form.command or "", *form.change.values()),
        flags=_certain(change | own) if is_flags_only else {},
    )
    since, until = form.since or fix.since, form.until or fix.until
    against: str | None = None
    if known is not None:
        against = ruled_out(fix, proposal, values, arguments)
        if against is None and not holds(version, since, until):
            against = f"it takes vLLM {span(since, until)}"
    is_set = all(is_so(flag, value or "", arguments) for flag, value in change.items())
    if None in change.values() or _is_for_the_user(form, values) or is_set:
        change = {}
    step = FixStep(
        number=1,
        do=do,
        command=_for_make(_entry_point(command, version), values.get("gpu_make", "")),
        change=_certain(change),
        why=_why(fix, form, values, version),
        risk=fix.risk,
        holds_for=span(since, until),
        documented=fix.documented,
        documented_as=_documented_as(fix, command),
        docs=fix.docs,
    )
    return step, against


def _certain(change: Mapping[str, str | None]) -> dict[str, str]:
    return {flag: value for flag, value in change.items() if value is not None}


def _filled_change(change: Mapping[str, str], values: Values) -> dict[str, str | None]:
    """Flags and values; a flag may be written with its value, as `--flag value`."""
    out: dict[str, str | None] = {}
    for template, value in change.items():
        words = shlex.split(templates.fill(template, values) or "")
        if not words:
            return {}
        text = templates.fill(value, values) if value else ""
        out[words[0]] = words[1] if len(words) > 1 else text
    return out


def _is_for_the_user(form: Form, values: Values) -> bool:
    """Tell whether a form holds a name that the user must choose."""
    stated = {name: "x" for name, value in values.items() if value} | {"model": "x"}
    if "replacement" in values:
        stated["replacement"] = values["replacement"]
    texts = [form.command or "", *form.change, *form.change.values()]
    return any(_STAND_IN.search(templates.fill(text, stated) or "") for text in texts if text)


def _documented_as(fix: Fix, command: str | None) -> str | None:
    """The guide's command, where the one shown does not hold it as it is."""
    guide = fix.documented_as
    return None if guide is not None and command is not None and guide in command else guide


def _why(fix: Fix, form: Form, values: Values, version: str | None) -> str | None:
    """The step's reason; where the release is unknown, the older way to write it too."""
    why = templates.fill(fix.why, values) if fix.why else None
    older = fix.form[-2] if versions.parse(version) is None and len(fix.form) > 1 else None
    if older is None or older is form or older.command is None:
        return why
    command = templates.fill(older.command, _safe(values))
    if command is None:
        return why
    note = f"vLLM {span(older.since, older.until)}: {command}"
    return f"{why}; {note}" if why else note


def _entry_point(command: str | None, version: str | None) -> str | None:
    """The `vllm` command came with 0.5.5; before, the server was a module."""
    if command is None or not is_before_command(version):
        return command
    return _SERVE.sub(
        lambda found: (
            f"python -m {SERVER_MODULE} --model {found[1]}"
            if found[1]
            else f"python -m {SERVER_MODULE} "
        ),
        command,
    )


def _for_make(command: str | None, make: str) -> str | None:
    """A command with the tools of the GPUs' make in place of NVIDIA's."""
    known = table("gpu-tools").get(make, {}) if command else {}
    for text in sorted(known, key=len, reverse=True):
        command = (command or "").replace(text, known[text])
    return command


def _safe(values: Values) -> Values:
    """Only what a shell takes as one plain word may enter a command: logs are untrusted."""
    return {
        name: value
        for name, value in values.items()
        if PLAIN.fullmatch(value) or name == "search_words" or name in QUOTED
    }


def _form(fix: Fix, version: str | None) -> Form | None:
    if not fix.form:
        return Form(since=fix.since, until=fix.until, command=fix.command, change=fix.change)
    if versions.parse(version) is None:
        return fix.form[-1]
    fitting = [form for form in fix.form if holds(version, form.since, form.until)]
    if fitting:
        return fitting[-1]
    return _later(fix.form, version)[-1] if fix.documented else None


def _later(forms: Sequence[_ByRelease], version: str | None) -> Sequence[_ByRelease]:
    """The form after a release that none fits: it lies between two, or before the first."""
    number = versions.parse(version)
    later = [
        form
        for form in forms
        if number and (since := versions.parse(form.since)) and number < since
    ]
    return later[:1] or forms
