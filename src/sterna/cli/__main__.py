"""`python -m sterna.cli` is `sterna`."""

from __future__ import annotations

import sys

from sterna.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
