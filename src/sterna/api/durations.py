"""Durations as Voda's tables show them, in Go's style: `28s`, `1m5s`, `1h2m3s`."""

from __future__ import annotations


def format_go_duration(seconds: float) -> str:
    """Format seconds, rounded to whole ones."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
