"""The command line. One file per command; what they have to say to a terminal is in `output` and `tables`."""
