"""cpu_sharing."""
