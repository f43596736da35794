"""Small training scripts in processes of their own, as the agent is used: started, asked, waited for, not left behind.

Tests wait for conditions with a bound; nothing sleeps for a fixed time and hopes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
BOUND_SECONDS = 30.0


def environment(folder: Path | None, **more: str) -> dict[str, str]:
    """Environment of a replica; without a folder, Sterna is absent."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STERNA_")}
    plain |= {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        plain["STERNA_DIR"] = str(folder)
    return plain | more


@contextmanager
def script(code: str, env: dict[str, str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A Python program that runs until the block ends."""
    with running([sys.executable, "-c", textwrap.dedent(code)], env, cwd) as process:
        yield process


@contextmanager
def running(command: list[str], env: dict[str, str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, env=env, cwd=cwd, text=True, **pipes)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def said(process: subprocess.Popen[str], word: str) -> None:
    """Wait until the script prints a line with the word."""
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
    raise AssertionError(f"the script ended without saying '{word}': {process.communicate()[1]}")


def tell(process: subprocess.Popen[str], line: str = "go on") -> None:
    """Let a script go on that waits for a line."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Poll until the condition is true and return its value."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        if answer := condition():
            return answer
        time.sleep(0.005)
    raise AssertionError(f"{what} did not come true within {BOUND_SECONDS:.0f} s")


def lines(folder: Path) -> list[dict[str, Any]]:
    """Lines that the agent has written."""
    path = folder / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
