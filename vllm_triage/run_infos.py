"""Run infos: the server runs as a report shows them."""

from collections.abc import Callable, Sequence

from vllm_triage.arguments import Value
from vllm_triage.commands import server_command
from vllm_triage.model import RunInfo
from vllm_triage.run import Run


def _redacted(name: str, value: Value, redact: Callable[[str], str]) -> Value:
    if isinstance(value, str):
        return redact(f"{name}={value}").partition("=")[2]
    if isinstance(value, list):
        return [redact(f"{name}={one}").partition("=")[2] for one in value]
    return value


def run_infos(found: Sequence[Run], redact: Callable[[str], str]) -> tuple[RunInfo, ...]:
    """The runs that say something of themselves; a restart with the same arguments is counted."""
    out: list[RunInfo] = []
    for run in found:
        if not (
            run.has_banner
            or run.version
            or run.model
            or run.was_serving
            or run.nccl_version
            or run.memory.weights_bytes
        ):
            continue
        info = run.info()
        command = server_command(run)
        info = info.model_copy(
            update={
                "arguments": {
                    name: _redacted(name, value, redact) for name, value in info.arguments.items()
                },
                "command": redact(command) if command else None,
                "model": redact(info.model) if info.model else None,
                "source": redact(info.source) if info.source else None,
            }
        )
        last = out[-1] if out else None
        if last is not None and (last.source, last.arguments, last.model, last.vllm_version) == (
            info.source, info.arguments, info.model, info.vllm_version,
        ):  # fmt: skip
            out[-1] = last.model_copy(
                update={
                    "restarts": last.restarts + 1,
                    "last_seen": info.last_seen,
                    "phase": info.phase,
                }
            )
            continue
        out.append(info)
    return tuple(out)
