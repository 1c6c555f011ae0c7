# make demo   installs into .venv and runs the main job; prints where the report is
# make test   everything CI checks: lint, types, import contract, doctests, tests, the README's commands
PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Two test processes on two cores: one thread each, and no spinning while waiting.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: fuzz demo test lint types imports unit test-kills test-slow bench clean

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e .
	@touch $@

.venv/dev: .venv/core
	$(PIP) -e '.[dev]'
	@touch $@

demo: .venv/core
	$(BIN)/dcnn compare demo --model schnet --minutes 0.9 --seeds 2 -o runs/demo

test: lint types imports unit

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/mypy

imports: .venv/dev
	$(BIN)/lint-imports

unit: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -q -m "not slow" --cov=src/dcnn --cov-report=term

# Twenty SIGKILLs each of a potential, a PDE of two stages and two processes; the figures are in results/trust.md.
test-kills: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s -m slow tests/train/test_kills.py

test-slow: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow

# Two threads that sleep between the many short operations of a step would spoil its time.
bench: .venv/dev
	env -u OMP_WAIT_POLICY $(BIN)/dcnn bench pde
	env -u OMP_WAIT_POLICY $(BIN)/dcnn bench atoms

# Damaged files for every reader: MINUTES CPU minutes each (results/trust.md has the figures).
MINUTES ?= 10
fuzz: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --hostile
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --minutes $(MINUTES) --keep build/fuzz

clean:
	rm -rf .venv build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage
