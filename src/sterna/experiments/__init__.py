"""Traces replayed under policies: one run, several side by side, and pages that show them."""
