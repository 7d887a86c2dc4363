"""Archive: a bug report as a zip, and how it comes to a file."""

import io
import zipfile
from collections.abc import Mapping

from vllm_triage.bundle import Bundle
from vllm_triage.expressions import expression
from vllm_triage.issue import body, versions
from vllm_triage.reports import json, markdown
from vllm_triage.reports.clean import clean

_ODD = expression(r"[^A-Za-z0-9._-]+")
_MAX_NAME = 60
_TIME = (1980, 1, 1, 0, 0, 0)
_WHAT = {
    "triage.md": "what broke, the lines that prove it, what to do",
    "triage.json": "the same for programs",
    "issue.md": "the body of an issue, in the order of vLLM's template",
    "command.txt": "how the log says the server was started",
    "versions.txt": "releases that the log states, and packages of the Python that made this",
    "system.txt": "the machine that made this",
    "environment.txt": "its variables that vLLM and its libraries read",
    "nvidia-smi.txt": "its GPUs, and how they are connected",
    "nvidia-smi-q.txt": "its GPUs in detail",
    "logs/": "lines of the logs with their numbers",
    "files/": "files that were attached",
}


def files(bundle: Bundle) -> dict[str, str]:
    """The texts of the archive by their names."""
    runs = bundle.report.runs
    out = {
        "triage.md": markdown.render(bundle.report),
        "triage.json": json.render(bundle.report),
        "issue.md": body(bundle),
        "command.txt": "".join(f"{clean(run.command)}\n" for run in runs if run.command),
        "versions.txt": "\n".join(
            f"{clean(run.source or 'log')}, line {run.first_line}\n{versions(run)}"
            for run in runs
            if versions(run)
        ),
    }
    system = bundle.system
    if system is not None:
        if system.packages:
            out["versions.txt"] += f"\nThis machine\n{system.packages}"
        out["system.txt"] = system.platform
        out["environment.txt"] = system.environment
        out["nvidia-smi.txt"] = system.gpus
        out["nvidia-smi-q.txt"] = system.gpu_details
    for number, one in enumerate(bundle.logs, 1):
        out[f"logs/{number:03}-{_safe(one.name)}.txt"] = f"{clean(one.name)}\n\n{one.text()}"
    for number, one in enumerate(bundle.attached, 1):
        out[f"files/{number:03}-{_safe(one.name)}"] = "".join(f"{row.text}\n" for row in one.lines)
    out = {name: text for name, text in out.items() if text.strip()}
    return {"README.txt": _readme(bundle, out), **out}


def zipped(texts: Mapping[str, str]) -> bytes:
    """The same texts always give the same bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in sorted(texts):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, texts[name].encode("utf-8", "replace"))
    return data.getvalue()


def _safe(name: str) -> str:
    """A file name that any system can unpack."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return _ODD.sub("-", last).strip("-.")[-_MAX_NAME:] or "log"


def _readme(bundle: Bundle, texts: Mapping[str, str]) -> str:
    root = bundle.report.root
    found = f"{root.title} ({root.kind.value})" if root else "No incident was found in these logs."
    folders = {name.partition("/")[0] + "/" if "/" in name else name for name in texts}
    rows = [f"Bug report made by vllm-triage {bundle.report.tool_version}", "", clean(found), ""]
    rows += [f"{name:<18}{what}" for name, what in _WHAT.items() if name in folders]
    if bundle.system is None:
        rows += ["", "Nothing of the machine that made it is in here (--no-system)."]
    if bundle.problems:
        rows += ["", "Not all could be read:", *(f"- {clean(one)}" for one in bundle.problems)]
    rows += [
        "",
        "Say yourself: what you expected, and how it can be made to happen again.",
        "",
        "Secrets that were recognised are replaced by [redacted], users' texts by [prompt left out].",
        "Look through the files before you share them: host names, addresses, paths and model",
        "names are still in them.",
    ]
    return "\n".join(rows) + "\n"
