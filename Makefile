# `make demo` and `make test` set themselves up: all they need is Python 3.11+, make and pip.
PYTHON ?= python3
BIN := .venv/bin

# Tests that are neither a soak nor on a GPU, side by side on the cores there are.
PYTEST := $(BIN)/pytest --numprocesses auto --dist worksteal -m
NOT_HERE := not soak and not gpu

.PHONY: demo test quick integration lint format soak clean docs

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[api,report,serve]'
	touch $@

.venv/.dev: .venv/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

.venv/.integration: .venv/.dev
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[integration]'
	touch $@

.venv/.docs: .venv/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

demo: .venv/.ready
	$(BIN)/tacit train pocket-hint --out runs/demo

test: .venv/.dev
	$(PYTEST) "$(NOT_HERE)" --ignore tests/integration

quick: .venv/.dev
	$(PYTEST) "$(NOT_HERE) and not slow" --ignore tests/integration

integration: .venv/.integration
	$(PYTEST) "$(NOT_HERE)" tests/integration

soak: .venv/.integration
	TACIT_SOAK_RESULTS=benchmarks/results $(BIN)/pytest -m soak

lint: .venv/.integration
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv runs dist .mypy_cache .pytest_cache .ruff_cache
