"""`python -m vllm_triage`."""

from vllm_triage.cli import main

main()
