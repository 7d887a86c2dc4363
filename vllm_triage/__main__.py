"""`vllm-triage` and `python -m vllm_triage`."""

import atexit
import gc
import os
import sys
import threading

# Modules and rules are many objects that stay: looking through them for garbage is for nothing.
_GARBAGE = 100_000


def run() -> None:
    """Run the command."""
    gc.set_threshold(_GARBAGE)
    from vllm_triage.cli import main

    try:
        main()
    except SystemExit as ending:
        _leave(ending.code)
        raise


def _leave(code: str | int | None) -> None:
    """End the process without taking every object apart, where nothing else is left to do."""
    if not isinstance(code, int) or threading.active_count() > 1:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        atexit._run_exitfuncs()
    except Exception:  # noqa: BLE001
        # Python tells it as it always does.
        return
    os._exit(code)


if __name__ == "__main__":
    run()
