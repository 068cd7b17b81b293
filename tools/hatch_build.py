"""What hatchling runs for a wheel: the compiled modules go into it, where there is a compiler.

A wheel without it is for every platform; ``PGSLUICE_INTERPRETED=1`` makes such a one, as
``make dist`` does for the machines of a Spark cluster. A checkout that is installed in place is
left to ``make setup``. Where the system has no compiler, one is a requirement of the build.
"""

from __future__ import annotations

import os
import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Compiles what can be compiled."""

    def dependencies(self) -> list[str]:
        """Name what the build needs beside hatchling."""
        if self._is_interpreted() or not self._tool()["needs_package"]():
            return []
        return (Path(self.root) / "requirements-compiler.in").read_text().split()

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the modules to the wheel, or warn."""
        if version == "editable" or self._is_interpreted():
            return
        tool = self._tool()
        why = tool["build"]()
        if why is not None:
            self.app.display_warning(f"rows are routed interpreted: {why}")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        for module in tool["MODULES"]:
            build_data["force_include"][str(Path(self.root) / module)] = module

    def _tool(self) -> dict[str, Any]:
        return runpy.run_path(str(Path(self.root) / "tools" / "build_rows.py"))

    @staticmethod
    def _is_interpreted() -> bool:
        return os.environ.get("PGSLUICE_INTERPRETED", "0") not in ("", "0")
