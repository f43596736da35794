"""A Dockerfile read into stages and instructions: enough to run the steps of one without a container engine."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Instruction(NamedTuple):
    """One line of a Dockerfile: `COPY`, and what follows it."""

    word: str
    rest: str


@dataclass
class Stage:
    """One stage: a `FROM` and the instructions up to the next."""

    image: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [each.rest for each in self.instructions if each.word == word]


def stages_of(text: str) -> list[Stage]:
    found: list[Stage] = []
    joined = re.sub(r"\\\n\s*", " ", "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#")))
    for line in filter(None, map(str.strip, joined.split("\n"))):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            image, _, name = rest.partition(" AS ")
            found.append(Stage(image, name))
        else:
            found[-1].instructions.append(Instruction(word, rest.strip()))
    return found


def is_ignored(path: str, ignore: str) -> bool:
    """Return True if `.dockerignore` excludes a file of the top folder; the last matching line decides."""
    verdict = False
    for line in ignore.split("\n"):
        if line and not line.startswith("#") and line.removeprefix("!") in ("*", path):
            verdict = not line.startswith("!")
    return verdict


def copies(stage: Stage) -> list[tuple[list[str], str]]:
    """Return the sources and the target of each copy from the project."""
    lines = [rest.split() for rest in stage.all("COPY") if not rest.startswith("--from")]
    return [(words[:-1], words[-1]) for words in lines]


def in_folder(command: str, folder: Path, places: tuple[str, ...]) -> str:
    """A command with the image's own folders replaced by folders below one of ours."""
    for place in places:
        command = re.sub(rf"(?<![\w.]){re.escape(place)}\b", str(folder / place.lstrip("/")), command)
    return command
