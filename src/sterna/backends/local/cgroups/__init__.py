"""cgroups."""
