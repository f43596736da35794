"""Fixtures of the end-to-end tests: real processes of one state folder each."""

from __future__ import annotations

from tests.e2e.replicas import replicas as replicas
