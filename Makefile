# make demo   installs into .venv and runs the main job; prints where the report is
# make test   everything CI checks: lint, types, import contract, doctests, tests, the README's commands
# make test-portable, test-oldest, test-newest, lock: other machines, other versions (docs/stability.md)
PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Two test processes on two cores: one thread each, and no spinning while waiting.
export OMP_WAIT_POLICY := PASSIVE
# Tests start many processes; none should compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

# One test file stays in one process; what the machine and the order of the tests may change is test-portable's matter.
PYTEST := -m pytest -n 2 --dist loadfile -q -m "not slow"
# The oldest torch that pyproject.toml admits.
FLOOR  := $(shell sed -n 's/.*"torch>=\([0-9.]*\)".*/\1/p' pyproject.toml)
FROM   ?= .venv

.PHONY: coverage fuzz demo test lint types imports unit docs test-kills test-slow test-portable test-oldest test-newest lock bench clean

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e '.[all]'
	@touch $@

.venv/dev: .venv/core
	$(PIP) -e '.[dev]'
	@touch $@

demo: .venv/core
	$(BIN)/dcnn compare demo --model schnet --minutes 0.9 --seeds 2 -o runs/demo

test: lint types imports unit docs

# The documentation, in site/index.html; warnings are errors.
docs: .venv/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/mypy

imports: .venv/dev
	$(BIN)/lint-imports

unit: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

coverage: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) --cov=src/dcnn --cov-report=term

# Twenty SIGKILLs each of a potential, a PDE of two stages and two processes; each must end bit-equal.
test-kills: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s -m slow tests/train/test_kills.py

test-slow: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow

# The suite as on other processors and with other numbers of threads, then in a random order (its seed is printed).
test-portable: .venv/dev
	tools/other-processors.sh $(BIN)/python $(PYTEST)
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -p randomly --randomly-dont-reset-seed

# `make test-oldest TORCH=2.12.0` tries another one. Without a GPU, let pip see CPU wheels (PIP_EXTRA_INDEX_URL).
test-oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet "torch==$(or $(TORCH),$(FLOOR))"
	grep -v '^torch==' constraints.txt > .venv-oldest/constraints.txt
	.venv-oldest/bin/pip install --quiet -c .venv-oldest/constraints.txt "torch==$(or $(TORCH),$(FLOOR))" -e '.[dev]'
	OMP_NUM_THREADS=1 .venv-oldest/bin/python $(PYTEST)

# The newest versions of everything; `TORCH=2.13.0` keeps torch where it is.
test-newest:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --upgrade --upgrade-strategy eager torch$(if $(TORCH),==$(TORCH)) -e '.[dev]'
	OMP_NUM_THREADS=1 .venv-newest/bin/python $(PYTEST)

# constraints.txt holds every version CI tests: after a new dependency `make lock`, to move on `make lock FROM=.venv-newest`.
lock:
	{ echo '# Every version that CI tests; written by `make lock`.'; \
	  $(FROM)/bin/pip freeze --all --exclude pip --exclude-editable | grep '==' | sed 's/+cpu$$//' | sort -f; } > constraints.new
	mv constraints.new constraints.txt

# Two threads that sleep between the many short operations of a step would spoil its time.
bench: .venv/dev
	env -u OMP_WAIT_POLICY $(BIN)/dcnn bench pde
	env -u OMP_WAIT_POLICY $(BIN)/dcnn bench atoms
	$(BIN)/dcnn bench atoms --preset paper --against plain --batch-size 20 --threads 1 --clock cpu --memory

# Damaged files for every reader: MINUTES CPU minutes each (results/trust.md has the figures).
MINUTES ?= 10
fuzz: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --hostile
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --minutes $(MINUTES) --keep build/fuzz

clean:
	rm -rf .venv .venv-oldest .venv-newest build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .coverage
