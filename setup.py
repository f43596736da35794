"""Extension modules that Cython compiles from Python sources, each with its C types in the `.pxd` file beside it.

They are optional: where there is no C compiler, the sources run as they are. Everything else about the package is in
pyproject.toml. `STERNA_BOUNDS_CHECKS=1` compiles them with every index checked (`make test-bounds`).
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = (
    "sterna.engine.check",
    "sterna.engine.kernels.bin_packing",
    "sterna.engine.ordering.tiresias_queues",
    "sterna.backends.simulated.job_table",
)

is_checked = os.environ.get("STERNA_BOUNDS_CHECKS") == "1"
extensions = cythonize(
    [Extension(name, [f"src/{name.replace('.', '/')}.py"]) for name in MODULES],
    build_dir="build/bounds" if is_checked else "build",
    compiler_directives={
        "language_level": 3,
        "annotation_typing": False,
        "boundscheck": is_checked,
        "wraparound": is_checked,
        "initializedcheck": is_checked,
    },
)
for extension in extensions:
    extension.optional = True  # cythonize drops the flag if it is given to Extension

setup(ext_modules=extensions)
