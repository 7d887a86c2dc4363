"""The build's own step: pattern files are parsed and regexes compiled once, so that starting need not.

The results lie beside the TOML files, which a wheel takes along as they are; an editable install
reads them where they are written, in the checkout.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltHook(BuildHookInterface[Any]):
    """Writes what `prebuilt`, `precompiled`, `prefilter` and `plans` of `vllm_triage` read."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write it."""
        sys.dont_write_bytecode = True
        sys.path.insert(0, self.root)
        from vllm_triage import plans, prebuilt, precompiled, prefilter
        from vllm_triage.catalogue import built_in
        from vllm_triage.necessary import necessary

        self._patterns = Path(self.root) / "patterns"
        self._parsed = self._patterns / prebuilt.NAME
        self._compiled = self._patterns / precompiled.NAME
        self._asked = self._patterns / prefilter.NAME
        self._plans = self._patterns / plans.NAME
        self._is_in_use = version == "editable" or self._parsed.is_file()
        prebuilt.write(self._patterns, self._parsed, is_edited=version == "editable")
        precompiled.write(self._compiled, _regexes(self._patterns))
        prefilter.write(
            self._asked, {text: necessary(text) for text in _patterns_regexes(self._patterns)}
        )
        plans.write(self._plans, built_in().rules.values())

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave a checkout in use as it was, another clean."""
        from vllm_triage import prebuilt

        if self._is_in_use:
            prebuilt.write(self._patterns, self._parsed, is_edited=True)
        else:
            self._parsed.unlink()
            self._compiled.unlink()
            self._asked.unlink()
            self._plans.unlink()


def _patterns_regexes(patterns: Path) -> Iterator[str]:
    for path in patterns.glob("*/*.toml"):
        for pattern in tomllib.loads(path.read_text("utf-8")).get("pattern", ()):
            if "regex" in pattern:
                yield pattern["regex"]


def _regexes(patterns: Path) -> Iterator[tuple[str | bytes, int]]:
    """Those of the pattern files and of the modules."""
    import regex

    from vllm_triage.expressions import every

    for text in _patterns_regexes(patterns):
        yield text, int(regex.MULTILINE)
    yield from every()
