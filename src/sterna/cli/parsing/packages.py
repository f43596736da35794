"""Packages that only some commands need and that `pip install sterna` leaves out: what to do where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sterna.errors import UserError


@contextmanager
def kubernetes_packages() -> Iterator[None]:
    """Around imports of what serves on a Kubernetes cluster; commands that only ask one need nothing more."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "sterna":
            raise  # a part of our own is missing, which no installation mends
        raise UserError(
            f"Serving on a Kubernetes cluster needs {error.name}; install it with: pip install 'sterna[kubernetes]'."
        ) from None
