# make run    sets everything up and runs the main job
# make test   sets everything up; lint, format check, strict types, import contracts, pytest
# make check-fast  the everyday loop within a minute: lint, types, one protocol's contract
# make nightly  what takes hours: slow tests, the bank at full effort, kills, audit, experiments
# make test-bank  sets everything up; the bank of broken mechanisms at full effort
# make docs-site  sets everything up and builds the documentation into site/
# make bench  sets everything up and prints the benchmarks

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
READY := $(VENV)/.ready
TESTED := $(VENV)/.ready-test
DOCUMENTED := $(VENV)/.ready-docs
export RAY_USAGE_STATS_ENABLED := 0
export FLWR_TELEMETRY_ENABLED := 0
# One thread of BLAS, as fedhist's own processes have: threads that wait for a core spin.
export OMP_NUM_THREADS := 1
# Empty is off: hundreds of processes would compile the same modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test check pytest bench validate docs docs-site test-slow clean reproduce reproduce-quick test-bank test-kills \
	check-fast nightly audit

run: $(READY)
	$(BIN)/fedhist run quickstart --out results/quickstart

# Side by side: what checks the source uses one core, and takes a tenth of the time of pytest.
test: $(TESTED)
	@$(MAKE) --no-print-directory --jobs=2 check pytest

check: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Types of what changed: mypy keeps what it knows of the rest. PROTOCOL=name chooses another one.
PROTOCOL ?= bounded-histogram
check-fast: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 0 tests/contract -k "[$(PROTOCOL)-"

pytest: $(TESTED)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

test-slow: $(TESTED)
	$(BIN)/python -m pytest -m slow

# The auditor against every broken mechanism of the bank, and every correct one, at full effort.
test-bank: $(TESTED)
	$(BIN)/python -m pytest tests/bank -m "slow or not slow"

# Every protocol against its claim; exit status 1 says that a violation is proved.
audit: $(READY)
	$(BIN)/fedhist audit all --out results/audit --force

# Each part runs to its end, whatever another one finds; the status is that of all of them.
nightly: $(TESTED)
	@status=0; for part in test-slow test-bank test-kills audit reproduce; do \
		$(MAKE) --no-print-directory $$part || status=1; \
	done; exit $$status

# Servers of every protocol killed at random moments, two hundred of them.
test-kills: $(TESTED)
	$(BIN)/python -m pytest tests/faults/test_kills.py -m "slow or not slow"

# The generated pages, and what README, docs and notebooks print; minutes.
docs: $(READY)
	$(BIN)/python docs/protocol_pages.py
	$(BIN)/python docs/layers_picture.py
	$(BIN)/python docs/weight.py --write
	$(BIN)/python docs/printed.py

# Built without a network; a warning is an error.
docs-site: $(DOCUMENTED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "documentation in site/index.html"

# What predictions say, over what is measured, at the settings of docs/results.md.
validate: $(READY)
	mkdir -p results
	$(BIN)/python -m simulations.benchmarks.defaults --predictions --out results/predictions.jsonl

# Exit status 5 says that some verdict is FAIL: the page says which, and why as far as is known.
reproduce: $(READY)
	$(BIN)/fedhist reproduce all --out results/reproduction || test $$? -eq 5

reproduce-quick: $(READY)
	$(BIN)/fedhist reproduce all --quick --out results/reproduction-quick

bench: $(READY)
	$(BIN)/python -m simulations.benchmarks

# Installing again is needed only when pyproject.toml changes: the install is editable. Modules are
# compiled when they are first imported: that is a quarter of what is installed. One installs at a
# time, even with --jobs; and only what was made to its end counts as made.
ifeq ($(MAKELEVEL),0)
.NOTPARALLEL:
endif

$(MADE):
	$(PYTHON) -m venv $(VENV)
	touch $(MADE)

$(READY): pyproject.toml | $(MADE)
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	touch $(READY)

$(TESTED): pyproject.toml | $(MADE)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[test]'
	touch $(READY) $(TESTED)

$(DOCUMENTED): $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $(DOCUMENTED)

clean:
	rm -rf $(VENV) build site dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
