"""The one supported import path."""

from importlib.resources import files

import vllm_triage


def test_all_is_sorted_complete_and_importable() -> None:
    assert vllm_triage.__all__ == sorted(vllm_triage.__all__)
    public = {name for name in vars(vllm_triage) if not name.startswith("_")}
    modules = {name for name in public if type(getattr(vllm_triage, name)).__name__ == "module"}

    assert public - modules <= set(vllm_triage.__all__)
    assert all(hasattr(vllm_triage, name) for name in vllm_triage.__all__)


def test_the_package_says_that_it_is_typed() -> None:
    assert files(vllm_triage).joinpath("py.typed").is_file()
