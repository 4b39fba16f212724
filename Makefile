# The commands of this repository; `make` alone lists them. Needed: Python 3.11 or newer, make, git.
# Everything is installed into .venv (and .venv-lowest); deleting those folders undoes it.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# numpy 1.26 and jax 0.4.38 have wheels for these.
PYTHON_LOWEST ?= $(shell for p in python3.11 python3.12 $(PYTHON); do \
	$$p -c '' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
LOWEST := .venv-lowest/bin
# the tests of the wrappers and of what leans on the inside of JAX, and the published snippets
LOWEST_TESTS = $(wildcard tests/qenvs/test_gymnasium*.py tests/qenvs/test_vector*.py) tests/seeds \
	$(patsubst %,tests/qenvs/test_%.py,autoreset apart threefry keys control_errors)
PYTEST_ARGS ?=
# With a process per core, threads in each only wait for one another.
ONE_THREAD = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# a file stays in one process, which shares its compiled fixtures
PARALLEL = -n auto --maxprocesses 4 --dist loadfile
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check lint format types claims lowest bench docs clean

help:  ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

demo: .venv/.demo  ## Learn a pulse: train an agent, optimise by gradient, print the table (results: runs/)
	@$(BIN)/qenvs demo

test: .venv/.test  ## Run the tests, all but the slow ones (PYTEST_ARGS="-k name" to choose)
	@$(ONE_THREAD) $(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(PYTEST_ARGS)

test-all: .venv/.test  ## Run every test
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

check: lint test claims  ## What must pass before a change lands: lint, tests, documented examples, claims

lint: .venv/.test  ## Formatting, lint rules and types
	@echo "ruff format" && $(BIN)/ruff format --check --quiet . || { echo "fix with: make format"; exit 1; }
	@echo "ruff check" && $(BIN)/ruff check --quiet .
	@echo "pyright" && $(BIN)/pyright --pythonpath $(BIN)/python

format: .venv/.test  ## Format the code and mend what ruff can
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

claims: .venv/.test  ## List what the specification promises and no test names
	@$(BIN)/python tools/claims.py

lowest: .venv-lowest/.lowest  ## Test the wrappers with the oldest supported versions (Gymnasium 1.0.0, JAX 0.4.38)
	@$(ONE_THREAD) $(LOWEST)/python -m pytest $(PARALLEL) -W default -p no:cacheprovider -m "not slow" $(PYTEST_ARGS) $(LOWEST_TESTS)

bench: .venv/.test  ## Measure throughput and print it as Markdown (BENCH_ARGS=--help for more)
	@$(BIN)/python benchmarks/throughput.py $(BENCH_ARGS)

docs: .venv/.docs  ## Build the documentation into site/
	@$(BIN)/mkdocs build --strict --quiet && echo "open site/index.html"

clean:  ## Remove environments and caches (results in runs/ stay)
	rm -rf .venv .venv-lowest site dist .pytest_cache .ruff_cache .hypothesis

# --- environments: a stamp file per set of packages, renewed when the pins or the metadata change ---

INSTALL = -m pip install --quiet --disable-pip-version-check
BROKEN = { rm -rf $(@D); echo "No virtual environment: on Debian or Ubuntu, apt install python3-venv"; exit 1; }

.venv/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3"; exit 1; }
	@echo "Creating .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv || $(BROKEN)

.venv-lowest/pyvenv.cfg:
	@echo "Creating .venv-lowest with $(PYTHON_LOWEST)"
	@$(PYTHON_LOWEST) -m venv .venv-lowest || $(BROKEN)

.venv/.demo: pyproject.toml constraints.txt | .venv/pyvenv.cfg
	@echo "Installing qenvs with Gymnasium and plots into .venv (a minute or two, once)"
	@$(BIN)/python $(INSTALL) -c constraints.txt -e '.[gym,plots]'
	@touch $@

.venv/.test: pyproject.toml constraints.txt | .venv/pyvenv.cfg
	@echo "Installing qenvs with the test tools and PyTorch into .venv (a few minutes, once)"
	@$(BIN)/python $(INSTALL) -c constraints.txt -e '.[gym,torch,plots,dev]'
	@touch $@ .venv/.demo

.venv/.docs: pyproject.toml constraints.txt | .venv/pyvenv.cfg
	@echo "Installing the documentation tools into .venv (once)"
	@$(BIN)/python $(INSTALL) -c constraints.txt -e '.[docs]'
	@touch $@

.venv-lowest/.lowest: pyproject.toml constraints-lowest.txt | .venv-lowest/pyvenv.cfg
	@echo "Installing the oldest supported versions into .venv-lowest (a minute or two, once)"
	@$(LOWEST)/python $(INSTALL) -c constraints-lowest.txt -e '.[gym,plots,test]'
	@touch $@
