"""Thin wrappers of operating-system facilities: /proc, prctl, atomic file writes, cgroup files, epoll wake-ups.

Jobs and replicas are unknown here.
"""
