# `make demo` and `make test` set themselves up: all they need is Python 3.11+, make and pip.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test quick lint format soak clean docs

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/.ready
	$(BIN)/tacit train pocket-hint --out runs/demo

test: .venv/.ready
	$(BIN)/pytest -m "not soak and not gpu"

quick: .venv/.ready
	$(BIN)/pytest -m "not soak and not gpu and not slow"

soak: .venv/.ready
	$(BIN)/pytest -m soak

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/.docs: .venv/.ready
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv runs dist .mypy_cache .pytest_cache .ruff_cache
