PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test fast-test lint format clean

demo: .venv/installed
	$(BIN)/clozemill demo --out demo-out --overwrite

test: lint
	$(BIN)/pytest

fast-test: .venv/installed
	$(BIN)/pytest -m "not slow"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv demo-out
