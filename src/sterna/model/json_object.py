"""Type of a JSON object that is built for a user: CLI output with `--json`, REST responses."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]
