# Everything a newcomer needs, each target in an environment of its own making. `make` alone lists the targets.
#
# Set PYTHON to choose an interpreter, BENCH=full for the long benchmarks, BENCH_ARGS for more (--only decide), and
# DEMO_ARGS likewise (--seconds 10). The Kubernetes of the tests is built once into the user's cache; where one is at
# hand, KUBEBUILDER_ASSETS names the folder of its programs.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BENCH ?= full
BENCH_ARGS ?=
DEMO_ARGS ?=
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-for-pyproject
OUT := out
COMPILED := setup.py $(shell find src -name '*.pxd') $(patsubst %.pxd,%.py,$(shell find src -name '*.pxd'))
DECIDING := tests/golden tests/properties tests/simulation \
  $(addprefix tests/unit/,reservations control engine experiments migrations placements policies cpu_shares)
CONTROL_PLANE := etcd kube-apiserver kube-controller-manager kubectl mpi-operator helm

.PHONY: help demo compare test test-pure test-bounds test-browser test-kubernetes test-nodes check format docs bench bench-kubernetes clean

help: ## Show this list
	@echo "Sterna: a scheduler for deep-learning training. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Made anew only when pyproject.toml changes or what is compiled, so that a second `make test` starts at once.
$(STAMP): pyproject.toml $(COMPILED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Sterna needs Python 3.11 or later, but '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing);" \
	    "install one and run make PYTHON=/path/to/python3.11." >&2; exit 2; }
	@echo "==> making the environment $(VENV) (once, and when pyproject.toml or what is compiled changes)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## Train a dozen real models three ways on two cores, and compare; about two minutes
	@mkdir -p $(OUT)
	@$(BIN)/sterna demo --report $(OUT)/demo.html $(DEMO_ARGS)

compare: $(STAMP) ## Compare all policies on a generated trace; about half a minute
	@mkdir -p $(OUT)
	@echo "==> making a trace of 400 jobs: $(OUT)/compare.csv"
	@$(BIN)/sterna trace make poisson --jobs 400 --seed 7 --output $(OUT)/compare.csv
	@echo "==> running every policy on 8 nodes of 8 devices; a restart costs 30 s"
	@$(BIN)/sterna compare --trace $(OUT)/compare.csv --nodes 8x8 --policies all --elastic 1x:4x --restart-cost 30 \
	  --report $(OUT)/compare.html
	@echo "==> open file://$(CURDIR)/$(OUT)/compare.html in a browser for the pictures"

test: $(STAMP) ## Run the tests, two at a time
	@echo "==> running the tests"
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(TEST_ARGS)

test-pure: $(STAMP) ## Run the decision tests on the pure-Python kernels
	@echo "==> running the decision tests on the pure-Python kernels"
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal --kernels pure $(DECIDING) $(TEST_ARGS)

test-bounds: $(STAMP) ## Run the decision tests on kernels that check every index
	@echo "==> compiling the kernels with bounds checks"
	@STERNA_BOUNDS_CHECKS=1 $(BIN)/python setup.py --quiet build_ext --build-lib $(OUT)/bounds --build-temp build/bounds
	@echo "==> running the decision tests on them"
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal --kernels $(OUT)/bounds $(DECIDING) $(TEST_ARGS)

test-browser: $(STAMP) ## Test the page in a real browser; skipped where there is none
	@echo "==> looking at the page with a browser"
	@$(BIN)/python -m pytest -q tests/e2e/test_page.py

# Without Go and without a Kubernetes at hand the tests say what to install, and are left out.
test-kubernetes: $(STAMP) ## Run the operator against a real control plane; the first time builds it, some ten minutes
	@echo "==> having a control plane ready"
	@$(BIN)/python -m tests.kubernetes.binaries $(CONTROL_PLANE) || [ $$? -eq 2 ]
	@echo "==> running the operator against it"
	@$(BIN)/python -m pytest tests/kubernetes --ignore=tests/kubernetes/nodes $(TEST_ARGS)
	@echo "==> running the contracts of the server in memory against it"
	@$(BIN)/python -m tests.kubernetes.control_plane run $(BIN)/python -m pytest tests/contracts $(TEST_ARGS)

test-nodes: $(STAMP) ## Train on two real kubelets in namespaces of their own; needs root
	@echo "==> having kubelets and images ready"
	@$(BIN)/python -m tests.kubernetes.binaries $(CONTROL_PLANE) kube-scheduler kubelet kube-proxy coredns || [ $$? -eq 2 ]
	@$(BIN)/python -m tests.kubernetes.nodes.images || [ $$? -eq 2 ]
	@echo "==> training on two nodes"
	@$(BIN)/python -m tests.kubernetes.nodes.apart $(BIN)/python -m pytest tests/kubernetes/nodes $(TEST_ARGS)

check: $(STAMP) ## Lint, formatting, types, import layers, style tests
	@echo "==> ruff: mistakes and style"
	@$(BIN)/ruff check .
	@echo "==> ruff: formatting"
	@$(BIN)/ruff format --check .
	@echo "==> mypy: types"
	@$(BIN)/mypy
	@echo "==> import-linter: imports go one way"
	@$(BIN)/lint-imports
	@echo "==> tests/style: purity, sizes, docs"
	@$(BIN)/python -m pytest -q tests/style

format: $(STAMP) ## Format the code and fix lint errors
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(STAMP) ## Run the commands of the docs and write their output into the pages
	@echo "==> running the commands of the docs"
	@$(BIN)/python -m tests.docs.console docs/policies/*.md docs/tutorial.md docs/traces.md CONTRIBUTING.md

bench: $(STAMP) ## Measure Sterna; BENCH=quick takes a minute, BENCH=full some five
	@mkdir -p $(OUT)
	@echo "==> measuring ($(BENCH)); results go to $(OUT)/bench.json"
	@$(BIN)/python -m tests.bench.run $(BENCH) --out $(OUT)/bench.json $(BENCH_ARGS)

bench-kubernetes: $(STAMP) ## Measure the operator on a real API server with fake nodes; BENCH=full takes some ten minutes
	@mkdir -p $(OUT)
	@$(BIN)/python -m tests.kubernetes.binaries etcd kube-apiserver || [ $$? -eq 2 ]
	@echo "==> measuring ($(BENCH)); results go to $(OUT)/bench-kubernetes.json"
	@$(BIN)/python -m tests.bench.kubernetes $(BENCH) --out $(OUT)/bench-kubernetes.json $(BENCH_ARGS)

clean: ## Remove the environment and all build results
	@echo "==> removing $(VENV), $(OUT) and caches"
	@rm -rf $(VENV) $(OUT) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
