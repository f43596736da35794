"""Figures and pages of simulation reports.

Running the simulations belongs to the package above.
"""
