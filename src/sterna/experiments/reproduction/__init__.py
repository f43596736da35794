"""Published results beside ours: one module a study, each a function from seeds to a `Reproduction`."""
