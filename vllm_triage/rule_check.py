"""The rules' own tests: what a pattern file promises, checked."""

from collections.abc import Iterator
from pathlib import Path

from vllm_triage import artefact_check, command_check, statistics, syntax, templates
from vllm_triage.assembler import Assembler
from vllm_triage.candidates import compiled
from vllm_triage.catalogue import Catalogue, files, load, read, unusable
from vllm_triage.conditions import satisfies
from vllm_triage.derived import NAMES as DERIVED
from vllm_triage.envelopes import Unwrapper
from vllm_triage.errors import RuleError
from vllm_triage.events import Event
from vllm_triage.facts import FAMILIES, build, seconds_field
from vllm_triage.growth import near_misses, searching, worst
from vllm_triage.kinds import Kind, Phase
from vllm_triage.lines import parse
from vllm_triage.matches import TIMEOUT_S, Match, Matcher
from vllm_triage.phases import phase_of
from vllm_triage.plain import fields as field_names
from vllm_triage.rules import Extension, Fix, Form, Pattern, Rule, Topic
from vllm_triage.run import Run
from vllm_triage.runs import Runs
from vllm_triage.tables import folder
from vllm_triage.thresholds import resolved

MAX_TITLE = 70
_MAX_SHOWN = 100
_RUN_VALUES = frozenset(
    ("model", "port", "host", "max_model_len", "tensor_parallel_size", "pipeline_parallel_size",
     "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "quantization", "dtype",
     "tokenizer", "vllm_version", "lower_gpu_memory_utilization", "higher_gpu_memory_utilization",
     "fitting_max_model_len", "lower_max_num_seqs", "higher_max_num_seqs",
     "cpu_offload_gb", "longer_max_model_len", "lower_max_num_batched_tokens", "higher_max_num_batched_tokens", "fitting_tensor_parallel_size",
     "higher_tensor_parallel_size", "split_tensor_parallel_size", "split_pipeline_parallel_size", "free_port", "shares_to_try", "longer_timeout",
     "larger_swap_space", "larger_cpu_cache", "fitting_cpu_cache", "search_words", "server_url", *DERIVED)
)  # fmt: skip
_OBSERVED = statistics.FROM_BEFORE | {statistics.PER_REQUEST}


def check(root: Path | None = None) -> list[str]:
    """Check the rules of a folder, or the built-in ones; one sentence a problem, none when all is right.

    Raises RuleError when the folder does not exist or holds no rules.
    """
    is_builtin = root is None
    base = root or folder()
    problems: list[str] = []
    rules: dict[Kind, Rule] = {}
    topics: dict[str, Topic] = {}
    own: dict[Kind, tuple[Pattern, ...]] = {}
    for path in files(base):
        try:
            name, entry = read(path, root=base)
        except RuleError as error:
            problems.append(str(error))
            continue
        if isinstance(entry, Topic):
            topics[name] = entry
            continue
        patterns, broken = _compiling(entry.pattern)
        problems += [f"{path.relative_to(base)}, {text}" for text in broken]
        entry = entry.model_copy(update={"pattern": patterns})
        kind = Kind(name)
        own[kind] = patterns
        rules[kind] = entry.extended(load().rules[kind]) if isinstance(entry, Extension) else entry
    if is_builtin:
        problems += [
            f"{kind.replace('.', '/')}.toml: missing; every kind has a file"
            for kind in Kind
            if kind not in rules
        ]
        catalogue = Catalogue(resolved(rules), topics)
    else:
        known = load()
        catalogue = Catalogue(resolved({**known.rules, **rules}), {**known.topics, **topics})
    matcher = Matcher(catalogue)
    for kind in rules:
        problems += _rule(kind, catalogue.rules[kind], matcher)
        if not is_builtin:
            # The built-in ones are so many that it takes a minute; their tests do it.
            problems += [
                f"{_file(kind)}, {pattern.name}: {problem}"
                for pattern in own[kind]
                if pattern.artefact is None
                for problem in _linear(pattern)
            ]
    for name, topic in topics.items():
        problems += [f"topics/{name}.toml: {text}" for text in _fixes(topic.fix, frozenset())]
    return problems


def _compiling(patterns: tuple[Pattern, ...]) -> tuple[tuple[Pattern, ...], list[str]]:
    """Leave out the patterns whose regex does not compile, with a sentence for each."""
    good: list[Pattern] = []
    problems: list[str] = []
    for pattern in patterns:
        problem = None if pattern.artefact is not None else unusable(pattern.regex)
        if problem is None:
            good.append(pattern)
        else:
            problems.append(f"{pattern.name}: {problem}")
    return tuple(good), problems


def _file(kind: Kind) -> str:
    return f"{kind.area}/{kind.value.partition('.')[2]}.toml"


def _rule(kind: Kind, rule: Rule, matcher: Matcher) -> Iterator[str]:
    where = _file(kind)
    fields = frozenset(field_names(FAMILIES[kind.area]))
    shown = [("title", rule.title), ("summary", rule.summary), ("cause", rule.cause)]
    for name, text in [*shown, *(("verify", text) for text in rule.verify_texts)]:
        yield from (f"{where}: {name}: {problem}" for problem in _template(text, fields))
    yield from (f"{where}: {problem}" for problem in _always_said(rule))
    try:
        title = templates.fill(rule.title, {}) or rule.title
        if len(title) > MAX_TITLE:
            yield f"{where}: title: {len(title)} characters, at most {MAX_TITLE} fit a report's first line"
    except ValueError:
        pass
    yield from (f"{where}: {problem}" for problem in _fixes(rule.fix, fields))
    for glob in rule.explained_by:
        area, _, rest = glob.partition(".")
        if area not in FAMILIES or (rest != "*" and glob not in {one.value for one in Kind}):
            yield f'{where}: explained_by: {glob!r} is neither a kind nor an area as "gpu.*"'
    names = [pattern.name for pattern in rule.pattern]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{where}: two patterns are named {name}"
    if not rule.pattern and rule.variant is None:
        yield f"{where}: no pattern and no variant: nothing would ever be this kind"
    for pattern in rule.pattern:
        yield from (
            f"{where}, {pattern.name}: {problem}"
            for problem in _pattern(kind, pattern, fields, matcher)
        )
    if rule.variant is not None:
        yield from (f"{where}, variant: {problem}" for problem in _variant(kind, rule, matcher))


def _always_said(rule: Rule) -> Iterator[str]:
    """A report must have a title, a summary and a cause, however little the log states."""
    try:
        if templates.fill(rule.title, {}) is None:
            yield f"title: every placeholder needs a fallback (in {rule.title!r})"
        for name in ("summary", "cause"):
            if not templates.fill_sentences(getattr(rule, name), {}):
                yield f"{name}: says nothing where the log states nothing; give a placeholder a fallback"
    except ValueError:
        # A brace that is no placeholder is told by itself.
        return


def _template(text: str, fields: frozenset[str]) -> Iterator[str]:
    try:
        names = templates.names(text)
    except ValueError as error:
        yield f"{error} (in {text!r})"
        return
    for name in sorted(names - fields - _RUN_VALUES):
        yield f"placeholder {name!r} is neither a fact of this area nor a value of the run (in {text!r})"


def _fixes(fixes: tuple[Fix, ...], fields: frozenset[str]) -> Iterator[str]:
    for position, fix in enumerate(fixes, 1):
        texts = [
            fix.do,
            fix.command,
            fix.why,
            *fix.change,
            *fix.change.values(),
            *fix.ruled_out.values(),
        ]
        for form in fix.form:
            texts += [form.command, *form.change, *form.change.values()]
        for text in texts:
            if text:
                yield from (f"fix {position}: {problem}" for problem in _template(text, fields))
        conditions = [*fix.needs, *fix.unless, *fix.where, *fix.ruled_out]
        for name in sorted({one.partition("=")[0] for one in conditions} - fields - _RUN_VALUES):
            yield f"fix {position}: condition on {name!r}, which is neither a fact of this area nor a value of the run"
        whole = [Form(since=fix.since, until=fix.until, command=fix.command, change=fix.change)]
        for form in fix.form or whole:
            since, until = form.since or fix.since, form.until or fix.until
            for problem in (
                *(command_check.problems(form.command, since, until) if form.command else ()),
                *command_check.change_problems(form.change, since, until),
            ):
                yield f"fix {position}: {problem}"
        if fix.form and (fix.command or fix.change):
            yield f"fix {position}: has both form and command or change; keep one"
        for flag in [*fix.change, *(flag for form in fix.form for flag in form.change)]:
            if not flag.startswith(("--", "{")):
                yield f"fix {position}: change {flag!r} is not a long flag"


def _pattern(
    kind: Kind, pattern: Pattern, fields: frozenset[str], matcher: Matcher
) -> Iterator[str]:
    if pattern.artefact is not None:
        yield from artefact_check.problems(
            kind, pattern, matcher.catalogue, lambda text: _events(text)[1]
        )
        return
    expression = compiled(pattern.regex)
    named = {*expression.groupindex, *pattern.facts}
    for name in sorted(
        one for one in named - fields if seconds_field(one, FAMILIES[kind.area]) is None
    ):
        yield f"captures {name!r}, which is no field of {FAMILIES[kind.area].__name__}"
    for name in sorted(
        {*pattern.at_least, *pattern.at_most} - set(expression.groupindex) - _OBSERVED
    ):
        yield f"bounds {name!r}, which the regex does not capture"
    if pattern.regex.startswith((".*", ".+")) or pattern.regex.endswith((".*", ".+")):
        yield "regex begins or ends with a repeat of any character; drop it"
    for hit in pattern.hits:
        for word in pattern.keywords:
            if word not in hit:
                yield f"keyword {word!r} is not in the hit {_short(hit)}"
        if pattern.any_of and not any(word in hit for word in pattern.any_of):
            yield f"none of any_of is in the hit {_short(hit)}"
        yield from _hit(kind, pattern, hit, matcher)
    for miss in pattern.misses:
        if any(
            _id(match) == f"{kind}:{pattern.name}"
            for _, found in _matches(pattern, miss, matcher)
            for match in found
        ):
            yield f"matches its miss {_short(miss)}"


def _hit(kind: Kind, pattern: Pattern, hit: str, matcher: Matcher) -> Iterator[str]:
    own = f"{kind}:{pattern.name}"
    repeated = "\n".join([hit] * pattern.times)
    results = [
        (event, found)
        for event, found in _matches(pattern, repeated, matcher)
        if any(_id(one) == own for one in found)
    ]
    if not results:
        is_slow = own in matcher.timed_out
        problem = f"takes over {TIMEOUT_S:g} s on" if is_slow else "does not match"
        yield f"{problem} its hit {_short(hit)}"
        return
    for _, found in results:
        match = next(one for one in found if _id(one) == own)
        facts = build(kind.area, match.fields)
        for name in match.fields:
            if match.fields[name] != "" and getattr(facts, name, "") is None:
                yield f"captures {str(match.fields[name])!r} as {name}, which is no such value, in {_short(hit)}"
    for _, found in results:
        best = found[0]
        if best.kind is not kind:
            yield f"hit {_short(hit)} is claimed by {_id(best)}"
            return


def _id(match: Match) -> str:
    return match.recogniser.id


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 3] + "...")


def _events(text: str) -> tuple[list[Event], Run]:
    unwrapper, assembler, runs = Unwrapper(), Assembler(), Runs()
    events: list[Event] = []
    run: Run | None = None
    texts = [
        item
        for number, row in enumerate(text.split("\n"), 1)
        for item in unwrapper.feed(number, row)
    ]
    texts += unwrapper.close()
    for item in texts:
        for line in parse(
            "hit",
            item.number,
            item.text,
            time=item.time,
            level=item.level,
            container=item.container,
        ):
            events += assembler.feed(line)
            run = runs.feed(line)
    events += assembler.close()
    return events, run or Run("hit", 1)


def _matches(pattern: Pattern, text: str, matcher: Matcher) -> Iterator[tuple[Event, list[Match]]]:
    matcher.reset()
    events, run = _events(text)
    if pattern.when is not None and run.phase is None:
        run.phase = pattern.when
    for need in pattern.needs:
        run.arguments.setdefault(need.replace("-", "_"), "yes")
    for event in events:
        yield event, matcher.all(event, run)


def _variant(kind: Kind, rule: Rule, matcher: Matcher) -> Iterator[str]:
    variant = rule.variant
    if variant is None:
        return
    for texts, wanted in ((variant.hits, True), (variant.misses, False)):
        for text in texts:
            events, run = _events(text)
            found = [
                match
                for event in events
                for match in matcher.all(event, run)[:1]
                if match.kind is variant.of
            ]
            held = any(
                satisfies(variant.needs, run, match.quantization)
                and variant.when in (None, _phase(match, run))
                for match in found
            )
            if wanted and not found:
                yield f"hit {_short(text)} is not matched by {variant.of}"
            elif wanted and not held:
                yield f"hit {_short(text)} does not show what the variant asks for"
            elif not wanted and held:
                yield f"miss {_short(text)} would become {kind}"


def _phase(match: Match, run: Run) -> Phase | None:
    phase = phase_of(match.event.frames, match.event.first.place) or run.phase
    return phase or (Phase.SERVING if run.was_serving else None)


def _linear(pattern: Pattern) -> Iterator[str]:
    text = pattern.regex.replace("\n", " ")
    regex = f"regex {text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + '...'}"
    try:
        syntax.parse(pattern.regex)
    except ValueError as error:
        yield f"{regex}: cannot be shown to take linear time with {error}; write the regex without it"
        return
    seeds = (*pattern.hits[:2], *pattern.keywords, *pattern.any_of)
    miss = worst(searching(compiled(pattern.regex)), near_misses(pattern.regex, seeds))
    if miss is not None:
        start = f"{_short(miss.head)} and then " if miss.head else ""
        yield (
            f"{regex}: takes more than linear time on {start}repeated {_short(miss.piece)}; use bounded repeats, "
            r"such as \w{1,80} for \w+, no two in a row that take the same characters and none within another"
        )
