"""The part of Helm's template language that our chart is written in, so that the chart can be rendered without Helm.

For the generator of `deploy/sterna.yaml` and for tests. Deliberately small: values, `include`, `if`, `else`, `with`,
`define` and a handful of functions. What is not known raises, so the chart cannot drift into what is rendered wrongly;
where Helm itself is at hand, a test compares the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

_TAG = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\(|\)|[^\s()"]+')


@dataclass
class _Block:
    """A part of a template: text, what replaces an action, or a branch with two sides."""

    kind: str
    what: str = ""
    then: list[_Block] = field(default_factory=list)
    otherwise: list[_Block] = field(default_factory=list)


class Templates:
    """A set of templates that may include one another's definitions."""

    def __init__(self, partials: Mapping[str, str]) -> None:
        self._defined: dict[str, list[_Block]] = {}
        for name, text in partials.items():
            self._parse(name, text)

    def render(self, name: str, text: str, root: Mapping[str, Any]) -> str:
        return self._run(self._parse(name, text), root, root)

    def _parse(self, name: str, text: str) -> list[_Block]:
        parts = list(_parts(text))
        blocks, rest = self._gather(parts)
        if rest:
            raise ValueError(f"{name}: '{{{{ {rest[0][1]} }}}}' closes nothing")
        return blocks

    def _gather(self, parts: list[tuple[bool, str]]) -> tuple[list[_Block], list[tuple[bool, str]]]:
        """Blocks up to an `else` or `end` that is not theirs, and the parts from there on."""
        blocks: list[_Block] = []
        while parts:
            is_action, text = parts[0]
            word, _, what = text.partition(" ")
            if is_action and word in ("end", "else"):
                return blocks, parts
            parts = parts[1:]
            if not is_action:
                blocks.append(_Block("text", text))
            elif word in ("if", "with", "define"):
                block, parts = self._branch(word, what.strip(), parts)
                if word != "define":
                    blocks.append(block)
            elif not text.startswith("/*"):
                blocks.append(_Block("action", text))
        return blocks, parts

    def _branch(self, word: str, what: str, parts: list[tuple[bool, str]]) -> tuple[_Block, list[tuple[bool, str]]]:
        block = _Block(word, what)
        block.then, parts = self._gather(parts)
        if parts and parts[0][1] == "else":
            block.otherwise, parts = self._gather(parts[1:])
        if not parts or parts[0][1] != "end":
            raise ValueError(f"'{{{{ {word} {what} }}}}' has no end")
        if word == "define":
            self._defined[json.loads(what)] = block.then
        return block, parts[1:]

    def _run(self, blocks: list[_Block], dot: Any, root: Any) -> str:
        said = []
        for block in blocks:
            if block.kind == "text":
                said.append(block.what)
            elif block.kind == "action":
                said.append(_format(self._value(block.what, dot, root)))
            else:
                found = self._value(block.what, dot, root)
                inside = found if block.kind == "with" and found else dot
                said.append(self._run(block.then if found else block.otherwise, inside, root))
        return "".join(said)

    def _value(self, pipeline: str, dot: Any, root: Any) -> Any:
        """A pipeline's result: each stage gets what came before as its last argument."""
        passed: list[Any] = []
        for stage in pipeline.split(" | "):
            first, *rest = _WORD.findall(stage)
            arguments = [self._term(word, dot, root) for word in rest] + passed
            passed = [self._call(first, arguments, dot, root)]
        return passed[0]

    def _call(self, word: str, arguments: list[Any], dot: Any, root: Any) -> Any:
        if word == "include":
            name, inside = arguments
            return self._run(self._defined[name], inside, root)
        if word in _FUNCTIONS:
            return _FUNCTIONS[word](*arguments)
        if arguments:
            raise ValueError(f"'{word}' is no function that this renderer knows")
        return self._term(word, dot, root)

    def _term(self, word: str, dot: Any, root: Any) -> Any:
        if word.startswith('"'):
            return json.loads(word)
        if word.isdigit():
            return int(word)
        start, path = (root, word[1:]) if word.startswith("$") else (dot, word)
        if not path.startswith(".") and path:
            raise ValueError(f"'{word}' is nothing that this renderer knows")
        for step in path.split("."):
            start = start[step] if step else start
        return start


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Text and actions in turn, with the white space gone that `{{-` and `-}}` eat."""
    at, eats = 0, False
    for tag in _TAG.finditer(text):
        before = text[at : tag.start()]
        before = before.lstrip() if eats else before
        yield False, before.rstrip() if tag[1] else before
        yield True, tag[2]
        at, eats = tag.end(), bool(tag[3])
    yield False, text[at:].lstrip() if eats else text[at:]


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if abs(value) >= 1e6:
            raise ValueError(f"{value}: Helm prints large numbers with an exponent; make it a string")
        return f"{value:g}"
    return str(value)


def _indent(width: int, text: str) -> str:
    return "\n".join(f"{' ' * width}{line}" if line else line for line in text.split("\n"))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "default": lambda usual, given: given or usual,
    "quote": lambda value: json.dumps(_format(value)),
    "toYaml": lambda value: yaml.safe_dump(value, sort_keys=True).rstrip("\n"),
    "nindent": lambda width, text: "\n" + _indent(width, text),
}
