"""The page at `/`: one file of HTML, style and script, which works without a network and asks only this cluster.

The routes that serve it and its data are in `sterna.api`.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def page() -> str:
    """The whole page."""
    return files(__name__).joinpath("page.html").read_text(encoding="utf-8")
