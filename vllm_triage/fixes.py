"""Fix steps rendered for one run: its release, its values, its own command."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import regex

from vllm_triage import suggest, templates, versions
from vllm_triage.arguments import Value, number
from vllm_triage.commands import flags_of, is_before_command
from vllm_triage.derived import QUOTED, derived, visible_gpus
from vllm_triage.echoes import SERVER_MODULE
from vllm_triage.facts import AnyFacts
from vllm_triage.model import FixStep
from vllm_triage.rules import Fix, Form, Rule, Verify
from vllm_triage.ruling import Proposal, is_so, permits, ruled_out, states
from vllm_triage.run import Run
from vllm_triage.versions import holds, span

Values = Mapping[str, str]
_ByRelease = TypeVar("_ByRelease", Form, Verify)

_SERVE = regex.compile(r"\bvllm serve (?:(?=-)|(\S+))")
# A name that the user must choose, DRAFT_MODEL or NAME; never a value that vLLM spells so.
_STAND_IN = regex.compile(
    r"(?<![\w./-])(?!(?:FLASHINFER|TRITON_ATTN|XFORMERS|DEBUG)\b)[A-Z]{2,}(?:[_/][A-Z]+)*(?![\w./-])"
)
_NO_WORD = regex.compile(r"[^\w.:/-]+")
_WORD = regex.compile(r"[\w./:@+=,%-]{1,300}")


def values_of(
    facts: AnyFacts | None, run: Run | None, processes: Iterable[str] = ()
) -> dict[str, str]:
    """The texts that placeholders may take from an incident's facts, its run and its processes.

    An empty text is a suggestion for which no value fits.
    """
    out: dict[str, str] = {}
    arguments: Mapping[str, Value] = run.arguments if run else {}
    if run is not None:
        _put(out, "vllm_version", run.version)
        _put(out, "model", run.model)
        for name in ("host", "port", "max_model_len", "tensor_parallel_size", "max_num_seqs",
                     "gpu_memory_utilization", "quantization", "dtype", "pipeline_parallel_size",
                     "tokenizer", "max_num_batched_tokens", "cpu_offload_gb"):  # fmt: skip
            value = arguments.get(name)
            _put(out, name, value if isinstance(value, str | int | float) else None)
        if "max_model_len" not in out:
            _put(out, "max_model_len", run.config.get("max_seq_len"))
        if "tensor_parallel_size" not in out:
            _put(out, "tensor_parallel_size", run.config.get("tensor_parallel_size"))
    known: dict[str, object] = facts.model_dump(exclude_none=True) if facts is not None else {}
    for name, fact in known.items():
        if name != "family" and not (name == "model" and "model" in out):
            _put(out, name, human(name, fact))
    words = _search_words(known.get("detail"))
    if words:
        out["search_words"] = words
    out["server_url"] = _server_url(arguments, out.get("port"))
    out.update(derived(known, run))
    out.update(_suggestions(known, run, processes))
    return out


def _server_url(arguments: Mapping[str, Value], port: str | None) -> str:
    """Where the server answers on its own machine: all interfaces are also the loopback's."""
    host = str(arguments.get("host") or "")
    if host in ("", "0.0.0.0", "::", "127.0.0.1", "None"):
        host = "localhost"
    scheme = "https" if arguments.get("ssl_certfile") or arguments.get("ssl_keyfile") else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port or 8000}"


def _search_words(detail: object) -> str | None:
    """An exception's words as a search takes them and a shell cannot misread them."""
    if not isinstance(detail, str):
        return None
    return " ".join(_NO_WORD.sub(" ", detail).split()[:10])[:120] or None


def _put(out: dict[str, str], name: str, value: object) -> None:
    if value is not None and value != "" and not isinstance(value, bool | list):
        out[name] = str(value)


def human(name: str, value: object) -> str:
    """Write a fact for people: bytes as GiB or MiB, floats without a tail of digits."""
    if name.endswith("_bytes") and isinstance(value, int):
        for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
            if abs(value) >= factor:
                return f"{value / factor:.2f} {unit}"
        return f"{value} bytes"
    if name.endswith("_s") and not name.endswith("_per_s") and isinstance(value, int | float):
        return f"{value:g} s"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _suggestions(
    known: Mapping[str, object], run: Run | None, processes: Iterable[str]
) -> dict[str, str]:
    arguments: Mapping[str, Value] = run.arguments if run else {}
    config: Mapping[str, Value] = run.config if run else {}

    def fact(name: str) -> float | None:
        value = known.get(name)
        return value if isinstance(value, int | float) else None

    utilization = fact("gpu_memory_utilization") or number(arguments, "gpu_memory_utilization")
    if utilization is None and run is not None and run.has_banner:
        utilization = suggest.default_utilization(run.version)
    free = fact("free_bytes") if "desired_bytes" in known else None
    length = (
        fact("max_model_len")
        or number(arguments, "max_model_len")
        or number(config, "max_seq_len")
    )
    parallel = (
        fact("tensor_parallel_size")
        or number(arguments, "tensor_parallel_size")
        or number(config, "tensor_parallel_size")
        or suggest.fewest_ranks(_rank(known), processes)
    )
    if parallel is None:
        parallel = fact("world_size") or (1 if arguments and run and run.has_banner else None)
    needed, available = fact("needed_bytes"), fact("available_bytes")
    share = available / needed if needed and available is not None else None
    batched = number(arguments, "max_num_batched_tokens")
    sequences = fact("max_num_seqs") or number(arguments, "max_num_seqs")
    port = fact("port") or number(arguments, "port")
    found = {
        "lower_gpu_memory_utilization": suggest.lower_utilization(
            utilization, free, fact("total_bytes")
        ),
        "higher_gpu_memory_utilization": suggest.higher_utilization(
            utilization,
            needed - available if needed and available is not None else None,
            fact("total_bytes"),
        ),
        "fitting_max_model_len": suggest.fitting_max_model_len(
            fact("estimated_max_model_len"),
            fact("kv_cache_tokens"),
            fact("derived_max_model_len"),
            length,
            share,
        ),
        "longer_max_model_len": suggest.longer_max_model_len(length),
        "lower_max_num_seqs": suggest.lower_max_num_seqs(sequences),
        "higher_max_num_seqs": suggest.higher_max_num_seqs(sequences),
        "lower_max_num_batched_tokens": suggest.lower_max_num_batched_tokens(batched, sequences),
        "higher_max_num_batched_tokens": suggest.higher_max_num_batched_tokens(batched),
        "higher_tensor_parallel_size": suggest.higher_tensor_parallel_size(
            fact("num_heads"), visible_gpus(known, run), parallel
        ),
        "fitting_tensor_parallel_size": suggest.fitting_tensor_parallel_size(
            fact("num_heads"), fact("gpu_count"), parallel
        ),
        "free_port": suggest.free_port(port),
    }
    return {name: value for name, value in found.items() if value is not None}


def _rank(known: Mapping[str, object]) -> int | None:
    """The rank that the failing line names."""
    rank = known.get("rank")
    return rank if isinstance(rank, int) else None


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
        command=_entry_point(command, version),
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


def _safe(values: Values) -> Values:
    """Only what a shell takes as one plain word may enter a command: logs are untrusted."""
    return {
        name: value
        for name, value in values.items()
        if _WORD.fullmatch(value) or name == "search_words" or name in QUOTED
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
