"""Run the commands of a page as a reader would: in order, in one folder, with the files that the page shows.

A page is Markdown. In its `console` blocks lines that start with `$ ` are commands and the lines below are what they
print; a block under `<!-- file: NAME -->` is a file to be there first. `python -m tests.docs.console PAGE..` writes the
real output into the pages. No shell is involved, so no pipes either.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 110

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^<!-- file: (\S+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STERNA = "import sys; from sterna.cli.main import main; sys.exit(main())"
_WALL_TIME = re.compile(r"^(simulated in) +[\d.]+", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    line: str
    printed: str
    """Output that the page shows."""


@dataclass(frozen=True)
class Outcome:
    exit_code: int
    printed: str
    complaint: str


def commands(page: str) -> list[Command]:
    return [command for block in _BLOCK.findall(page) for command in _in_block(block)]


def _in_block(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, printed = part.partition("\n")
        yield Command(line, printed.rstrip())


def lay_out(page: Path, folder: Path) -> None:
    """Write the files of the page, and the files beside it that are not pages, into the folder."""
    for name, text in _FILE.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")
    for file in page.parent.glob("*.yaml"):
        shutil.copy(file, folder)


def run(command: Command, folder: Path) -> Outcome:
    """Run a command in the folder with the `sterna` of this source tree."""
    words = shlex.split(command.line)
    if words[0] == "sterna":
        words = [sys.executable, "-c", _STERNA, *words[1:]]
    plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=os.environ | plain, check=False)
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")
    return Outcome(done.returncode, printed, done.stderr)


def without_times(printed: str) -> str:
    """Remove the wall time of simulations, which changes from run to run."""
    return _WALL_TIME.sub(r"\1", printed)


def renew(page: Path) -> None:
    """Replace the output of every command of the page by the real one."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(page, folder)

        def with_real_output(match: re.Match[str]) -> str:
            parts = []
            for command in _in_block(match[1]):
                outcome = run(command, folder)
                if outcome.exit_code:
                    raise SystemExit(f"{page}: '{command.line}' failed: {outcome.complaint}")
                is_same = without_times(outcome.printed) == without_times(command.printed)
                printed = command.printed if is_same else outcome.printed
                parts.append(f"$ {command.line}\n" + (f"{printed}\n" if printed else ""))
            return f"```console\n{''.join(parts)}```"

        page.write_text(_BLOCK.sub(with_real_output, text), encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        renew(Path(argument))
