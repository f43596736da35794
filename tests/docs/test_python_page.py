"""The code blocks of the page about the Python interface run, one after the other."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.docs.console import ROOT


def test_code_of_the_python_page_runs() -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.M | re.S
    )
    # In a process of its own, so that its policy does not enter the registry of the other tests.
    code = "\n".join([f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}]", *blocks])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "smallest" in done.stdout


def test_rules_are_written_with_the_public_module_alone() -> None:
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    internal = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in pages
        for line in re.findall(
            r"^(?:from|import) sterna\.(?!rules\b|agent\b|kinds\b|progress\b).*", page.read_text(encoding="utf-8"), re.M
        )
    ]
    assert internal == []
