"""The build's own step: pattern files are parsed and regexes compiled once, so that starting need not.

The results lie beside the TOML files, which a wheel takes along as they are; an editable install
reads them where they are written, in the checkout.
"""

import importlib
import pkgutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltHook(BuildHookInterface[Any]):
    """Writes what `vllm_triage.prebuilt` and `vllm_triage.precompiled` read."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write it."""
        sys.dont_write_bytecode = True
        sys.path.insert(0, self.root)
        from vllm_triage import prebuilt, precompiled

        self._patterns = Path(self.root) / "patterns"
        self._parsed = self._patterns / prebuilt.NAME
        self._compiled = self._patterns / precompiled.NAME
        self._is_in_use = version == "editable" or self._parsed.is_file()
        prebuilt.write(self._patterns, self._parsed, is_edited=version == "editable")
        precompiled.write(self._compiled, _regexes(self._patterns))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave a checkout in use as it was, another clean."""
        from vllm_triage import prebuilt

        if self._is_in_use:
            prebuilt.write(self._patterns, self._parsed, is_edited=True)
        else:
            self._parsed.unlink()
            self._compiled.unlink()


def _regexes(patterns: Path) -> Iterator[tuple[str | bytes, int]]:
    """Those of the pattern files and of the modules that need only what the build has."""
    import regex

    for path in patterns.glob("*/*.toml"):
        for pattern in tomllib.loads(path.read_text("utf-8")).get("pattern", ()):
            yield pattern["regex"], int(regex.MULTILINE)
    import vllm_triage
    from vllm_triage.expressions import EVERY

    for module in pkgutil.walk_packages(vllm_triage.__path__, "vllm_triage."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                # It needs click or pydantic: it is not for reading logs.
                continue
    yield from EVERY
