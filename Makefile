# Everything from a fresh checkout: `make demo` runs the main job, `make test` all that must pass.
# The virtual environment is .venv; the command is .venv/bin/timebound.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUST_SOURCES := $(shell find crates -name '*.rs' -not -path '*/tests/*' -not -path '*/benches/*' 2>/dev/null) $(wildcard crates/*/Cargo.toml) Cargo.toml Cargo.lock

.PHONY: help demo control test test-rust test-python lint format bench fuzz docs build clean tools

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

tools:
	@scripts/check-tools $(PYTHON)

$(BIN)/uv: requirements/bootstrap.txt | tools
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(VENV)/.run: requirements/run.txt $(BIN)/uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/run.txt
	@touch $@

$(VENV)/.control: requirements/control.txt $(VENV)/.run
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/control.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.built: $(RUST_SOURCES) pyproject.toml $(VENV)/.run
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --locked --quiet --uv
	@# As an installed wheel has it: without, each start compiles every module wherever nobody may write bytecode.
	@$(BIN)/python -m compileall -q python/timebound
	@touch $@

build: $(VENV)/.built ## the wheel, into .venv

control: build $(VENV)/.control ## what `timebound manager` and `timebound controller` need besides, into .venv

demo: build ## the main job: predict, simulate and emulate `hello`, one report
	@status=0; $(BIN)/timebound run hello --output runs/demo || status=$$?; \
	if [ $$status -eq 4 ]; then echo "The machine disturbed the emulated part; the report says how. That is no failure of the demo."; exit 0; fi; exit $$status

# Both parts run whatever becomes of the first, and one table says what was skipped. SKIPS: the list of these tests, for `scripts/skips`.
SKIPS ?= target/skipped-tests

test: ## everything that must pass; what this machine lacks for it is said at the end
	@mkdir -p $(dir $(SKIPS)); rm -f $(SKIPS); export TIMEBOUND_SKIPS=$(abspath $(SKIPS)); \
	rust=passed; $(MAKE) --no-print-directory test-rust || rust=FAILED; \
	python=passed; $(MAKE) --no-print-directory test-python || python=FAILED; \
	echo; $(PYTHON) scripts/skips table $(SKIPS); \
	echo; echo "Rust tests: $$rust. Python tests: $$python."; \
	[ $$rust$$python = passedpassed ]

test-rust:
	cargo test --workspace --locked --quiet --no-fail-fast

# What works on files and numbers alone uses two processes; what keeps time or makes networks has the machine to itself. Both run
# whatever becomes of the first.
ALONE := tests/live tests/control tests/controller tests/machine

test-python: build $(VENV)/.dev
	@status=0; \
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ALONE:%=--ignore=%) || status=1; \
	$(BIN)/python -m pytest $(ALONE) || status=1; \
	exit $$status

lint: build $(VENV)/.dev ## formatters, clippy, ruff, mypy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	$(BIN)/ruff format --check python tests
	$(BIN)/ruff check python tests
	$(BIN)/mypy

format: $(VENV)/.dev
	cargo fmt --all
	$(BIN)/ruff format python tests
	$(BIN)/ruff check --fix python tests

bench: build $(VENV)/.dev ## the figures that the project claims, each with its method
	scripts/bench

SECONDS_EACH = $(if $(filter command%,$(origin SECONDS)),$(SECONDS),10)

fuzz: ## every fuzz target for so many seconds: `make fuzz SECONDS=60` (10 where none are given)
	scripts/fuzz $(SECONDS_EACH)

docs: build ## reference pages and schemas of the file formats, from the models that check them
	$(BIN)/python -m timebound.scenario.reference docs
	$(BIN)/python -m timebound.control.manager.reference docs

clean:
	rm -rf target $(VENV) runs
