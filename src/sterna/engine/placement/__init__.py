"""Tools for placements: free capacity while a plan is made, placing and re-packing.

The placements themselves are in `sterna.placements`.
"""
