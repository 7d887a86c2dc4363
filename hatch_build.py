"""The build's own step: the pattern files are parsed once, so that starting need not."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltHook(BuildHookInterface[Any]):
    """Puts the parsed content beside the TOML files, which a wheel takes along as they are.

    An editable install reads it where it is written, in the checkout.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write it."""
        self._patterns = Path(self.root) / "patterns"
        self._prebuilt = _module(Path(self.root) / "vllm_triage" / "prebuilt.py")
        self._target: Path = self._patterns / self._prebuilt.NAME
        self._is_in_use = version == "editable" or self._target.is_file()
        self._write(is_edited=version == "editable")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave the checkout as it was."""
        if self._is_in_use:
            self._write(is_edited=True)
        else:
            self._target.unlink()

    def _write(self, *, is_edited: bool) -> None:
        self._prebuilt.write(self._patterns, self._target, is_edited=is_edited)


def _module(path: Path) -> Any:
    """A module by its file: what the package depends on is not there yet."""
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
