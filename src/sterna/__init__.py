"""Sterna: a scheduler for deep-learning training that decides in one pure function and explains itself.

The public surface for notebooks and scripts: `simulate`, `compare`, `Trace`, `Mix`, `Cluster`, `Result`, `Comparison`,
`metric` and `UserError`. Authors of policies import `sterna.rules`, training code imports `sterna.agent`; every other
module is internal. Names are imported on first use, because every command and every training process imports this
module; their types are in `__init__.pyi`.
"""

__version__ = "0.1.0"

_MODULE_OF = {
    "Cluster": "sterna.experiments.cluster",
    "Comparison": "sterna.experiments.comparison",
    "Mix": "sterna.workloads.generate",
    "Result": "sterna.experiments.result",
    "Trace": "sterna.workloads.trace",
    "UserError": "sterna.errors",
    "compare": "sterna.experiments.public",
    "metric": "sterna.experiments.metrics.user_metric",
    "simulate": "sterna.experiments.public",
}

__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'sterna' has no attribute '{name}'")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
