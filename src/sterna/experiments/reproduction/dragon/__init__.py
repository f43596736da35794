"""dragon."""
