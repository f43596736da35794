"""Compiles the inner loops to machine code when Sterna is installed, where there is a C compiler.

The modules are the ones that pyproject.toml lists, compiled by Cython as they stand, with the types in the `.pxd` file
beside each. They go into a package of their own, `sterna_compiled`, so that nothing compiled ever lies among the
sources, and an editable install has them, too. Without a compiler, or with `STERNA_COMPILE=0`, the package is pure
Python and does the same, slower. `STERNA_COMPILE=1` insists: what cannot be compiled is an error then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILD_DEPENDENCIES = ["cython>=3.1", "setuptools>=68"]
PACKAGE = "sterna_compiled"
_SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
_DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
}


class CompileHook(BuildHookInterface[Any]):
    """Adds extension modules to a wheel, or to what an editable install puts beside the sources."""

    _scratch: Path | None = None

    def dependencies(self) -> list[str]:
        return BUILD_DEPENDENCIES if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not is_wanted():
            return
        self._scratch = Path(tempfile.mkdtemp(prefix="sterna-compile-"))
        package = self._scratch / PACKAGE
        try:
            _lay_out([Path(self.root) / each for each in self.config["modules"]], package)
            subprocess.run([sys.executable, __file__, str(self._scratch)], check=True, stdout=sys.stderr)
        except (subprocess.CalledProcessError, OSError) as trouble:
            if os.environ.get("STERNA_COMPILE") == "1":
                raise
            print(f"Sterna is installed without machine code: {trouble}", file=sys.stderr)
            return
        key = "force_include_editable" if version == "editable" else "force_include"
        for each in [package / "__init__.py", *package.glob(f"*{_SUFFIX}")]:
            build_data[key][str(each)] = f"{PACKAGE}/{each.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


def is_wanted() -> bool:
    asked = os.environ.get("STERNA_COMPILE", "")
    return asked == "1" or (asked != "0" and _can_compile())


def _can_compile() -> bool:
    """Whether there is a C compiler, and Python's header."""
    compiler = (os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc")).split()[0]
    return shutil.which(compiler) is not None and (Path(sysconfig.get_path("include")) / "Python.h").is_file()


def _lay_out(modules: list[Path], package: Path) -> None:
    """Copies of the modules and of their types, and a package that tells what they were compiled of."""
    package.mkdir()
    checksums = {each.stem: checksum_of(each) for each in modules}
    for each in modules:
        shutil.copy(each, package)
        shutil.copy(each.with_suffix(".pxd"), package)
    text = f'"""Machine code of Sterna, and the checksums of what it was compiled of."""\n\nCHECKSUMS = {checksums!r}\n'
    (package / "__init__.py").write_text(text, encoding="utf-8")


def checksum_of(module: Path) -> int:
    """Of a module and its types together, as `sterna.engine.kernels.native` works it out."""
    return zlib.crc32(module.read_bytes() + module.with_suffix(".pxd").read_bytes())


def _compile(folder: Path) -> None:
    """Turn the modules in a folder into machine code, where they are."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    os.chdir(folder)
    modules = [each for each in sorted(Path(PACKAGE).glob("*.py")) if each.name != "__init__.py"]
    options = [] if os.name == "nt" else ["-O2", "-g0"]
    extensions = [Extension(f"{PACKAGE}.{each.stem}", [str(each)], extra_compile_args=options) for each in modules]
    extensions = cythonize(extensions, compiler_directives=_DIRECTIVES, quiet=True)
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.inplace, command.parallel = True, len(modules)
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    _compile(Path(sys.argv[1]))
