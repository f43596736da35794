"""Search paths of the Kubernetes programs. Nothing is built here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.binaries import MODULES, PROGRAMS, NotAvailable, cache, found, need


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that has nothing: no cache, no programs on its path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def put(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_assets_come_before_the_cache(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = put(cache() / "etcd-v3.6.7" / "etcd")
    assert found("etcd") == cached
    asset = put(machine / "assets" / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine / "assets"))
    assert need("etcd") == asset


def test_servers_are_not_taken_from_the_path_but_clients_are(machine: Path) -> None:
    put(machine / "bin" / "etcd")
    kubectl = put(machine / "bin" / "kubectl")
    assert found("etcd") is None
    assert found("kubectl") == kubectl


def test_missing_go_is_named_in_one_sentence(machine: Path) -> None:
    with pytest.raises(NotAvailable, match=r"etcd is not here; install Go .* or later, or name a folder .*ASSETS"):
        need("etcd")


def test_every_program_is_of_one_module() -> None:
    assert sum(len(module.programs) for module in MODULES) == len(PROGRAMS)
