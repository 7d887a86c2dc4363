"""`vllm-triage` and `python -m vllm_triage`."""

import gc

# Modules and rules are many objects that stay: looking through them for garbage is for nothing.
_GARBAGE = 100_000


def run() -> None:
    """Run the command."""
    gc.set_threshold(_GARBAGE)
    from vllm_triage.cli import main

    main()


if __name__ == "__main__":
    run()
