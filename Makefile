# Two commands do everything: `make demo` and `make test`. Both build .venv by themselves and are safe to run twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: help demo test test-slow lint types layers check format bench clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/.app  ## identify a predator-prey model from the hare and lynx record
	$(BIN)/sciad fit examples/lynx_hare/problem.toml --out out/lynx_hare

test: $(VENV)/.test  ## run the tests (under 15 minutes on 2 cores)
	$(BIN)/python -m pytest -n $(WORKERS)

test-slow: $(VENV)/.test  ## run the long tests only
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/pyright

layers: $(VENV)/.test
	$(BIN)/lint-imports

check: test lint types layers  ## everything that CI runs

format: $(VENV)/.test  ## bring the code into the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench  ## measure, with the peers in the same run
	$(BIN)/python -m benchmarks

clean:  ## remove what the commands made
	rm -rf $(VENV) .venv-tool out .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# One virtual environment; a stamp for each set of extras in it. Without the venv module (Debian splits it off),
# virtualenv does the same from a folder of its own.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "sciad needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  $(PYTHON) -m pip install --quiet --target .venv-tool virtualenv && PYTHONPATH=.venv-tool $(PYTHON) -m virtualenv --quiet $(VENV); }

$(VENV)/.app $(VENV)/.test $(VENV)/.bench: $(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	@touch $@
