"""`python -m sterna.cli` is `sterna`."""

from __future__ import annotations

import sys

from sterna.cli.entry import sterna

if __name__ == "__main__":
    sys.exit(sterna())
