"""What is compiled when Sterna is installed: what pyproject.toml lists, where there is a compiler; no harm if not."""

from __future__ import annotations

import importlib
import subprocess
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sterna.backends.simulated import job_table
from sterna.engine.kernels.native import installed, twin_of

ROOT = Path(__file__).resolve().parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
MODULES: list[str] = WHEEL["hooks"]["custom"]["modules"]


@pytest.fixture
def build() -> ModuleType:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_hook(build: ModuleType, tmp_path: Path, root: Path = ROOT, modules: list[str] = MODULES) -> Any:
    return build.CompileHook(str(root), {"modules": modules}, None, None, str(tmp_path), "wheel")


def a_module_that_does_not_compile(folder: Path) -> list[str]:
    (folder / "wrong.py").write_text("def half(")
    (folder / "wrong.pxd").write_text("cdef what is this")
    return ["wrong.py"]


def test_every_module_that_is_compiled_exists_and_has_types() -> None:
    files = [(ROOT / name).with_suffix(suffix) for name in MODULES for suffix in (".py", ".pxd")]
    assert [file for file in files if not file.is_file()] == []


def test_every_file_of_types_belongs_to_a_module_that_is_compiled() -> None:
    typed = [str(file.relative_to(ROOT).with_suffix(".py")) for file in ROOT.glob("src/**/*.pxd")]
    assert sorted(typed) == sorted(MODULES)


@pytest.mark.parametrize("setting", [("STERNA_COMPILE", "0"), ("CC", "/nowhere/cc")], ids=["not wanted", "no compiler"])
def test_an_install_may_do_without(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: tuple[str, str]
) -> None:
    monkeypatch.delenv("STERNA_COMPILE", raising=False)
    monkeypatch.setenv(*setting)
    hook, data = a_hook(build, tmp_path), dict[str, Any]()
    hook.initialize("standard", data)
    assert (hook.dependencies(), data) == ([], {})


def test_what_does_not_compile_is_left_out_and_said(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STERNA_COMPILE", raising=False)
    monkeypatch.setattr(build, "is_wanted", lambda: True)
    hook = a_hook(build, tmp_path, tmp_path, a_module_that_does_not_compile(tmp_path))
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize("standard", data)
    hook.finalize("standard", data, "")
    assert data == {"force_include": {}}
    assert "installed without machine code" in capfd.readouterr().err


def test_who_insists_is_told_that_it_does_not_compile(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STERNA_COMPILE", "1")
    hook = a_hook(build, tmp_path, tmp_path, a_module_that_does_not_compile(tmp_path))
    with pytest.raises(subprocess.CalledProcessError):
        hook.initialize("standard", {"force_include": {}})
    hook.finalize("standard", {}, "")


@pytest.fixture
def checksums() -> dict[str, int]:
    """Of what the machine code here was made of."""
    try:
        made: dict[str, int] = importlib.import_module("sterna_compiled").CHECKSUMS
    except ImportError:
        pytest.skip("there is no machine code: Sterna was installed without a C compiler")
    return made


def test_the_machine_code_here_is_of_these_sources(build: ModuleType, checksums: dict[str, int]) -> None:
    """Else the tests would be about columns only."""
    sources = {Path(name).stem: build.checksum_of(ROOT / name) for name in MODULES}
    assert checksums == sources, "compile again what has changed: `make` any target that needs the environment"
    assert installed() is not None


def test_machine_code_of_other_sources_is_not_used(checksums: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources of an editable install change under it."""
    monkeypatch.setitem(checksums, "loops", 1)
    monkeypatch.setitem(checksums, "job_table", 1)
    assert installed() is None
    assert twin_of(job_table) is job_table
