"""A world of events on a virtual clock."""
