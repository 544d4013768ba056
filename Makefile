# make run    sets everything up and runs the main job
# make test   sets everything up; lint, format check, strict types, import contracts, pytest
# make bench  sets everything up and prints the benchmarks

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TESTED := $(VENV)/.ready-test
export RAY_USAGE_STATS_ENABLED := 0
export FLWR_TELEMETRY_ENABLED := 0

.PHONY: run test check pytest bench validate reproduce reproduce-quick docs-check test-slow clean

run: $(READY)
	$(BIN)/fedhist run quickstart --out results/quickstart

test: check pytest

check: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

pytest: $(TESTED)
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(TESTED)
	$(BIN)/python -m pytest -m slow

docs-check: $(TESTED)
	$(BIN)/python -m pytest -m readme tests/test_readme.py

validate: $(READY)
	$(BIN)/fedhist validate

# Exit status 5 says that some verdict is FAIL: the page says which, and why as far as is known.
reproduce: $(READY)
	$(BIN)/fedhist reproduce all --out results/reproduction || test $$? -eq 5

reproduce-quick: $(READY)
	$(BIN)/fedhist reproduce all --quick --out results/reproduction-quick

bench: $(READY)
	$(BIN)/fedhist bench

# Installing again is needed only when pyproject.toml changes: the install is editable.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $(READY)

$(TESTED): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $(TESTED)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
