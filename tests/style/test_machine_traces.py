"""The repository is the same on every machine: no paths of one, no package index of one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDERS = ("work", "root", "home", "Users")
HOSTS = ("py" + "pi.", "python" + "hosted", "index" + "-url", "trusted" + "-host")

MACHINE_PATH = re.compile(rf"(?:^|[^\w.~])/(?:{'|'.join(FOLDERS)})/\w")
INDEX_HOST = re.compile("|".join(map(re.escape, HOSTS)))


def marks_of_a_machine(text: str) -> list[str]:
    return [
        f"line {number}: {line.strip()[:100]}"
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line) or INDEX_HOST.search(line)
    ]


def test_no_kept_file_names_a_machine(kept_files: list[Path], root: Path) -> None:
    found = []
    for path in kept_files:
        if path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        found += [f"{path.relative_to(root)}, {mark}" for mark in marks_of_a_machine(text)]
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_path_of_one_machine_is_found(folder: str) -> None:
    assert marks_of_a_machine(f'open("/{folder}/x/trace.csv")')
    assert not marks_of_a_machine(f"docs/{folder}/page.md")


@pytest.mark.parametrize("host", HOSTS)
def test_a_package_index_is_found(host: str) -> None:
    assert marks_of_a_machine(f"pip install --{host}org x")
