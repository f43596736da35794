"""Grid of simulations over traces, curves, restart costs, knowledge and policies: `python -m tests.bench.grid`."""
