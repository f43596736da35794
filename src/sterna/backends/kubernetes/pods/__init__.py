"""Kubernetes pods, services and SharePods: built from decisions, and read back as rows. No I/O."""
