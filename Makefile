# The same commands for people and for CI. Needs Python 3.11 or later with venv, make and gcc.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?=

.PHONY: help demo test check torture bench clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

$(VENV)/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

demo: $(VENV)/.made ## a whole trial on a small real vLLM on this machine's CPU
	$(BIN)/draftworth demo $(DEMO)

test: $(VENV)/.made ## every test, with real vLLM servers; installs the engine if it is missing
	$(BIN)/python -m pytest -m 'not torture'

check: $(VENV)/.made ## style, types, and that generated docs are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/make_help.py --check

torture: $(VENV)/.made ## the slow sweeps in full
	$(BIN)/python -m pytest -m torture

bench: $(VENV)/.made ## every figure in the docs again, into benchmarks/results
	$(BIN)/python benchmarks/tool_overhead.py
	$(BIN)/python benchmarks/engine_start.py
	$(BIN)/python benchmarks/client_overhead.py
	$(BIN)/python benchmarks/coverage.py

clean: ## remove what make made here (engines and trials are kept)
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
