"""Frozen data: what is known at one instant, and what is decided about it. Nothing here computes a decision."""
