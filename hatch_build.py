"""Compiles the modules that run in every round to C, if asked: `STERNA_COMPILE=1 pip install .`

They are the same files, compiled as they stand by mypyc; the list is in pyproject.toml. Without it the package is pure
Python, which is what everybody gets who did not ask, what an editable install always is, and all that a machine without
a C compiler can have. Both do the same: `make test-compiled` runs the tests of what decides on such a build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD_DEPENDENCIES = ["mypy[mypyc]>=1.10", "setuptools>=68", "numpy>=1.26"]
_SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))


class CompileHook(BuildHookInterface[Any]):
    """Adds extension modules to a wheel. Nothing is ever left among the sources, where it would shadow them."""

    _scratch: Path | None = None

    def dependencies(self) -> list[str]:
        return BUILD_DEPENDENCIES if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not _is_wanted():
            return
        self._scratch = Path(tempfile.mkdtemp(prefix="sterna-compile-"))
        sources = self._scratch / "src"
        try:
            shutil.copytree(Path(self.root) / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
            command = [sys.executable, "-m", "mypyc", "--ignore-missing-imports", *self.config["modules"]]
            subprocess.run(command, cwd=sources, check=True, stdout=sys.stderr)
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        made = [each for each in sources.rglob(f"*{_SUFFIX}") if "build" not in each.relative_to(sources).parts]
        if not made:
            raise RuntimeError(f"mypyc made no module that ends in {_SUFFIX}, so there is nothing compiled to install.")
        for each in made:
            build_data["force_include"][str(each)] = str(each.relative_to(sources))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _is_wanted() -> bool:
    return os.environ.get("STERNA_COMPILE") == "1"
