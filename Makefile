PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test fast-test lint format clean

demo: .venv/demo
	$(BIN)/clozemill demo --out demo-out --overwrite

test: lint
	$(BIN)/pytest

fast-test: .venv/dev
	$(BIN)/pytest -m "not slow"

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy -p benchmarks
	$(BIN)/sqlfluff lint --disable-progress-bar analysis

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What `make demo` needs, without ray and the test tools. torch comes alone first, by its pin, of
# which a CPU build may be at hand (pip takes 2.13.0+cpu for 2.13.0); asked for by the open ranges
# of others, it may come with gigabytes of CUDA.
.venv/demo: .venv/made pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) -e ".[demo,train]"
	touch $@

.venv/dev: .venv/made pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) -e ".[dev]"
	touch $@

.venv/made:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || { \
	  echo "clozemill needs Python 3.11 or newer and '$(PYTHON)' is not; name one: make PYTHON=python3.12" >&2; \
	  exit 1; }
	$(PYTHON) -m venv .venv
	touch $@

clean:
	rm -rf .venv demo-out
