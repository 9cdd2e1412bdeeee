# Everything a developer does, and CI alike. `make` lists it; each goal first sets up what it needs.
#
#   PYTHON=python3.12                  which interpreter makes .venv (default: the first 3.11 or newer found); to
#                                      change it later: make clean setup PYTHON=python3.13
#   PYTEST_ARGS="tests/core -k baton"  what `make test` and `make test-system` pass to pytest
#   PINS_ARGS=--upgrade                what `make pins` passes to uv
#   MUTANTS_ARGS="--sample 20"         what `make mutants` passes on: so many changes of each room

BIN := .venv/bin
READY := .venv/.ready
PYTEST_ARGS ?= -n 4 --dist worksteal --max-worker-restart=0

export PYTHON
export PINS_ARGS
unexport PYTHONDONTWRITEBYTECODE # without bytecode, each of the tests' many processes compiles all its packages

.DEFAULT_GOAL := help
.PHONY: help setup test test-system lint format types docs image demo bench mutants dev pins clean

help: ## list the goals
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A test that failed beside others, on a machine that lends its processors, runs once more by itself; both are printed.
# The first that fails again ends it, and so does a run that broke off (exit codes of pytest above 1).
define run_tests
@$(BIN)/python -m pytest -m "$(1)" $(PYTEST_ARGS) || { test $$? -eq 1 && printf '\nBy themselves:\n' && \
$(BIN)/python -m pytest -m "$(1)" $(PYTEST_ARGS) -n 0 --last-failed --last-failed-no-failures=none --exitfirst; }
endef

setup: $(READY) ## make .venv with the pinned packages (again only when the pins change)

# A .venv whose interpreter is gone is made anew; one whose interpreter was updated is checked.
$(BIN)/python: ;

$(READY): $(BIN)/python pyproject.toml requirements/uv.txt requirements/dev.txt tools/setup.sh
	@sh tools/setup.sh
	@touch $@

test: $(READY) ## run the tests that need no browser, database, killed process or storm
	$(call run_tests,not system)

test-system: $(READY) ## run the other tests
	$(call run_tests,system)

lint: $(READY) ## check style, format and which module may import which
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check || { echo "lint: 'make format' puts that right" >&2; exit 1; }
	@$(BIN)/lint-imports --no-logo

format: $(READY) ## put style and format right, where that can be done automatically
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

types: $(READY) ## check the types
	@$(BIN)/mypy

docs: $(READY) ## build the site of the docs into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

image: ## build the worker image, where a Docker engine answers
	@if docker info >/dev/null 2>&1; \
	then docker build --file deploy/Dockerfile --tag "baton-worker:$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)" .; \
	else echo "image: not built, because no Docker engine answers here"; fi

demo: $(READY) ## watch a pipeline run on an embedded Temporal server
	@$(BIN)/python demo.py

bench: $(READY) ## measure what the README's figures come from
	@$(BIN)/python -m benchmarks

mutants: $(READY) ## change lines of baton/, and list the changes that no test notices (a night)
	@test -x build/mutants/bin/cosmic-ray || $(BIN)/python -m venv build/mutants
	@build/mutants/bin/python -m pip install --quiet --require-hashes -r requirements/mutants.txt
	@build/mutants/bin/python tools/mutants.py $(MUTANTS_ARGS)

dev: $(READY) ## run the embedded Temporal server and a worker until Ctrl-C
	@$(BIN)/baton dev

pins: $(READY) ## write requirements/*.txt anew from pyproject.toml
	@sh tools/pins.sh

clean: ## remove .venv, caches and builds (not .baton, which holds your runs)
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist build site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
