"""The Dockerfile, tested without a container engine: its steps are run in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.deploy.chart import ROOT, Name, objects_of_one_file
from tests.deploy.dockerfile import copies, in_folder, is_ignored, stages_of
from tests.kernel_builds import MODULES

STAGES = stages_of((ROOT / "Dockerfile").read_text(encoding="utf-8"))
BUILD, FINAL = STAGES
IGNORE = (ROOT / ".dockerignore").read_text(encoding="utf-8")


def test_both_stages_have_one_pinned_python() -> None:
    assert BUILD.image == FINAL.image
    image, _, tag = FINAL.image.partition(":")
    version, _, flavour = tag.partition("-")
    assert (image, flavour) == ("python", "slim")
    assert version.startswith("3.")
    assert int(version[2:]) >= 11


def test_what_is_copied_exists_and_reaches_the_build() -> None:
    for sources, _ in copies(BUILD):
        for source in sources:
            assert (ROOT / source).exists()
            assert not is_ignored(source, IGNORE)
    assert is_ignored("tests", IGNORE)
    assert is_ignored(".git", IGNORE)


def test_the_image_runs_as_the_user_that_the_deployment_names() -> None:
    pod = objects_of_one_file()[Name("Deployment", "sterna-system", "sterna-operator")]["spec"]["template"]["spec"]
    security = pod["securityContext"]
    assert FINAL.all("USER") == [f"{security['runAsUser']}:{security['runAsGroup']}"]


def test_the_image_starts_sterna_and_serves_the_ports_of_its_services() -> None:
    assert FINAL.all("ENTRYPOINT") == ['["sterna"]']
    assert FINAL.all("EXPOSE") == ["8769 8081"]


def test_only_the_build_stage_has_a_compiler() -> None:
    assert any("apt-get install" in step and " gcc " in step for step in BUILD.all("RUN"))
    assert not any("apt-get" in step for step in FINAL.all("RUN"))


@pytest.mark.slow
def test_the_steps_of_the_build_yield_a_wheel_that_starts(tmp_path: Path) -> None:
    """Without its dependencies, which are those of this environment: a test fetches nothing."""
    if find_spec("Cython") is None:
        pytest.skip("Cython, which the build needs, is not installed: pip install cython")
    _copy(tmp_path)
    _run_steps(tmp_path)
    wheels = list((tmp_path / "wheels").glob("sterna-*.whl"))
    assert len(wheels) == 1
    site = tmp_path / "site"
    _pip("install", "--no-deps", "--no-index", "--target", str(site), str(wheels[0]))
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sterna; print(sterna.__file__); from sterna.cli.main import main; main(['--help'])",
        ],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.startswith(str(site))
    assert "A scheduler for deep-learning training" in shown
    assert (site / "bin" / "sterna").is_file()
    assert (site / "sterna" / "dashboard" / "page.html").is_file()
    assert len(list(site.glob("sterna/**/*.so"))) == len(MODULES)


def _copy(folder: Path) -> None:
    place = folder / BUILD.all("WORKDIR")[0].lstrip("/")
    for sources, target in copies(BUILD):
        for source in sources:
            into = place / target / (source if target.endswith("/") and (ROOT / source).is_file() else "")
            into.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, into, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                shutil.copy(ROOT / source, into)


def _run_steps(folder: Path) -> None:
    place = BUILD.all("WORKDIR")[0]
    for step in BUILD.all("RUN"):
        command = in_folder(step, folder, (place, "/wheels"))
        if command.startswith("apt-get "):
            continue
        command = command.replace("python ", f"{sys.executable} ")
        if " pip wheel " in command:
            command += " --no-deps --no-build-isolation --no-index --quiet"
        subprocess.run(
            command,
            shell=True,
            cwd=folder / place.lstrip("/"),
            check=True,
            capture_output=True,
        )


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
