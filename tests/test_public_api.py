"""The one supported import path."""

import vllm_triage


def test_all_is_sorted_complete_and_importable() -> None:
    assert vllm_triage.__all__ == sorted(vllm_triage.__all__)
    public = {name for name in vars(vllm_triage) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(vllm_triage, name)).__name__ == "module"}

    assert public - modules <= set(vllm_triage.__all__)
    assert all(hasattr(vllm_triage, name) for name in vllm_triage.__all__)
