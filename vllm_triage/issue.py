"""Issue: a bug report as the body of an issue, in the order of vLLM's own template."""

from vllm_triage.bundle import Bundle
from vllm_triage.contract import Incident, RunInfo
from vllm_triage.excerpts import Excerpt, Shown, around
from vllm_triage.expressions import expression
from vllm_triage.reports.clean import clean, inert
from vllm_triage.reports.markdown import code, escape, fenced

# .github/ISSUE_TEMPLATE/400-bug-report.yml of vLLM; GitHub refuses a longer body.
MAX_BODY = 65_536
_MAX_ENVIRONMENT = 20_000
_MAX_COMMAND = 6_000
_MAX_TEXT = 2_000
_MAX_LINE = 2_000
_MAX_OTHERS = 10
_RESERVE = 1_000
_MAX_LOG = 30_000
_DASHES = expression(r"-(?=-|>)")
_COLLECTED = "Collecting environment information"


def title(bundle: Bundle) -> str:
    """The issue's title."""
    root = bundle.report.root
    return f"[Bug]: {clean(root.title) if root else 'say what is wrong'}"


def body(bundle: Bundle) -> str:
    """At most 65,536 characters of Markdown; what only the user knows is marked for them to write."""
    head = [f"<!-- Title: {_DASHES.sub('- ', title(bundle))} -->", "", *_environment(bundle)]
    head += ["### 🐛 Describe the bug", "", *_said(bundle)]
    tail = ["", "### Before submitting a new issue...", ""]
    tail += ["- [ ] I have searched for relevant issues and asked the chatbot of the documentation page."]  # fmt: skip
    used = sum(len(row) + 1 for row in (*head, *tail)) + _RESERVE
    rows = [*head, *_log(bundle, min(_MAX_LOG, max(0, MAX_BODY - used))), *tail]
    return inert("\n".join(rows))[: MAX_BODY - 1] + "\n"


def _environment(bundle: Bundle) -> list[str]:
    found = next((one for one in (*bundle.attached, *bundle.logs) if _is_collected(one)), None)
    if found is not None:
        summary = "The output of <code>python collect_env.py</code>"
        text = "\n".join(one.text for one in found.lines)
    else:
        summary = "What vllm-triage found (<code>vllm collect-env</code> tells more)"
        text = _gathered(bundle)
    rows = fenced(_cut(text, _MAX_ENVIRONMENT).splitlines(), "text")
    return [
        "### Your current environment", "", "<details>", f"<summary>{summary}</summary>", "", *rows, "", "</details>", "",
    ]  # fmt: skip


def _is_collected(found: Excerpt) -> bool:
    return any(_COLLECTED in one.text for one in found.lines[:5])


def _gathered(bundle: Bundle) -> str:
    parts = [f"From the log\n{versions(run)}" for run in bundle.report.runs[:1] if versions(run)]
    system = bundle.system
    if system is not None:
        parts += [
            f"{name}\n{_cut(text, _MAX_ENVIRONMENT // 3)}"
            for name, text in (
                ("This machine", system.platform),
                ("Packages of this Python", system.packages),
                ("Environment", system.environment),
                ("nvidia-smi", system.gpus),
            )
            if text.strip()
        ]
    return "\n".join(parts) or "Not known: run vllm collect-env in the server's container."


def versions(run: RunInfo) -> str:
    """The releases that a run's log states, a line each."""
    how = f" ({run.vllm_version_from})" if run.vllm_version_from else ""
    rows = (
        ("vLLM", f"{run.vllm_version}{how}" if run.vllm_version else None),
        ("engine", run.engine),
        ("torch", run.torch_version),
        ("NCCL", run.nccl_version),
        ("model", run.model),
        ("GPUs in use", run.devices),
    )
    return "".join(f"{name}: {clean(str(value))}\n" for name, value in rows if value is not None)


def _said(bundle: Bundle) -> list[str]:
    root = bundle.report.root
    if root is None:
        rows = ["<!-- vllm-triage found no incident in these logs: say what is wrong. -->", ""]
    else:
        rows = [
            f"**{escape(root.title)}** (`{root.kind.value}`, as vllm-triage {bundle.report.tool_version} reads the log)",
            "",
            escape(root.summary[:_MAX_TEXT]),
            "",
        ]
        others = [one for one in bundle.report.incidents if one is not root][:_MAX_OTHERS]
        if others:
            rows += [f"Also seen: {', '.join(_short(one) for one in others)}.", ""]
    rows += ["<!-- What did you expect, and how can it be made to happen again? -->", ""]
    command = _command(bundle)
    if command:
        rows += [
            "The server was started with",
            "",
            *fenced([_cut(command, _MAX_COMMAND)], "sh"),
            "",
        ]
    return rows


def _short(incident: Incident) -> str:
    return f"`{incident.kind.value}`" + (
        f" ({incident.count} times)" if incident.count > 1 else ""
    )


def _command(bundle: Bundle) -> str | None:
    return next((clean(run.command) for run in bundle.report.runs if run.command), None)


def _log(bundle: Bundle, most: int) -> list[str]:
    """The lines around the root cause, else the end of the first log."""
    root = bundle.report.root
    first = root.evidence[0] if root else None
    found = next((one for one in bundle.logs if first and one.name == first.source), None)
    if found is not None and first is not None:
        lines = around(found.lines, first.line, most)
        intro = f"From {code(found.name)}, line {first.line} states the cause:"
    else:
        found = next(iter(bundle.logs), None)
        if found is None or not found.lines:
            return []
        lines = around(found.lines, found.lines[-1].number, most // 4)
        intro = f"The end of {code(found.name)}:"
    return [intro, "", *fenced(_rows(lines), "text")]


def _rows(lines: list[Shown]) -> list[str]:
    rows, last = [], 0
    for one in lines:
        if last and one.number != last + 1:
            rows.append("[...]")
        rows.append(_cut(one.text, _MAX_LINE).replace("\n", " "))
        last = one.number
    return rows


def _cut(text: str, most: int) -> str:
    return (
        text if len(text) <= most else f"{text[:most]}\n[{len(text) - most} characters left out]"
    )
