"""The loop: observe, decide, check, act, journal. The same object in every world."""
