"""Choosing the cluster that a command speaks to, and the clients that speak to it.

No rendering belongs here.
"""
