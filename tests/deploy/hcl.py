"""Terraform's language, as far as an example uses it: blocks, attributes, strings, numbers, lists.

Only reads; expressions stay text. For a check without Terraform, and for reading what an example asks for.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKEN = re.compile(r'\s*(#[^\n]*\n|"(?:[^"\\]|\\.)*"|[{}\[\]=,]|[^\s{}\[\]=,"]+)')


class Block(NamedTuple):
    """`resource "kind" "name" { .. }`"""

    kind: str
    labels: tuple[str, ...]
    attributes: dict[str, str]
    blocks: list[Block]

    def block(self, kind: str) -> Block:
        return next(each for each in self.blocks if each.kind == kind)


def blocks_of(text: str) -> list[Block]:
    """The top blocks of a file; `ValueError` where it is not well formed."""
    tokens = [(m[1], m.end()) for m in _TOKEN.finditer(text + "\n") if not m[1].startswith("#")]
    if re.sub(r"\s", "", _TOKEN.sub("", text + "\n")):
        raise ValueError("something is neither a word, a string nor a bracket")
    attributes, blocks, at = _body([token for token, _ in tokens], 0)
    if at != len(tokens) or attributes:
        raise ValueError("a bracket closes nothing, or an attribute stands outside of a block")
    return blocks


def _body(tokens: list[str], at: int) -> tuple[dict[str, str], list[Block], int]:
    attributes: dict[str, str] = {}
    blocks: list[Block] = []
    while at < len(tokens) and tokens[at] != "}":
        name, at = tokens[at], at + 1
        if not re.fullmatch(r"[A-Za-z_][\w-]*", name):
            raise ValueError(f"'{name}' is no name")
        if at < len(tokens) and tokens[at] == "=":
            attributes[name], at = _expression(tokens, at + 1)
            continue
        labels = []
        while at < len(tokens) and tokens[at].startswith('"'):
            labels.append(tokens[at][1:-1])
            at += 1
        if at >= len(tokens) or tokens[at] != "{":
            raise ValueError(f"'{name}' is neither a block nor an attribute")
        inner, below, at = _body(tokens, at + 1)
        if at >= len(tokens):
            raise ValueError(f"the block '{name}' is never closed")
        blocks.append(Block(name, tuple(labels), inner, below))
        at += 1
    return attributes, blocks, at


def _expression(tokens: list[str], at: int) -> tuple[str, int]:
    """One value: a word, a string, or a bracketed list or map with everything in it."""
    if tokens[at] not in "[{":
        return tokens[at].strip('"'), at + 1
    depth, said = 0, []
    while at < len(tokens):
        token = tokens[at]
        depth += (token in "[{") - (token in "]}")
        said.append(token)
        at += 1
        if depth == 0:
            return " ".join(said), at
    raise ValueError("a list or map is never closed")
