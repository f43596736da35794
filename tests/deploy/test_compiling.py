"""What is compiled when asked to: modules that exist, and nothing unless somebody asks."""

from __future__ import annotations

import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
HOOK = WHEEL["hooks"]["custom"]


@pytest.fixture
def build() -> ModuleType:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_hook(build: ModuleType, tmp_path: Path) -> Any:
    return build.CompileHook(str(ROOT), HOOK, None, None, str(tmp_path), "wheel")


def test_every_module_that_is_compiled_exists() -> None:
    assert [name for name in HOOK["modules"] if not (ROOT / "src" / name).is_file()] == []


def test_nobody_needs_a_compiler_who_did_not_ask(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STERNA_COMPILE", raising=False)
    hook, data = a_hook(build, tmp_path), dict[str, Any]()
    hook.initialize("standard", data)
    assert (hook.dependencies(), data) == ([], {})


def test_an_editable_install_is_never_compiled(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STERNA_COMPILE", "1")
    hook, data = a_hook(build, tmp_path), dict[str, Any]()
    hook.initialize("editable", data)
    assert data == {}
    assert "mypy" in " ".join(hook.dependencies())
