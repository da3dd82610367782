# runyard: the developer's commands. `make` alone lists them.
#
# Each target makes its own .venv from the lock file when needed; after that nothing touches the network.
# Only relative paths are used, so that a checkout may live in a directory with spaces in its name.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: docs help demo sim test test-all test-long check bench fmt clean prove lock kube-assets helm conformance package bench-kube bench-help bench-dispatch bench-node test-dispatch test-node bench-xcresult test-xcresult recovery-table recovery-many

SHELL := /bin/sh
PYTHON ?=
BIN := .venv/bin
PY := $(BIN)/python
RUNYARD := $(BIN)/runyard
LINT_IMPORTS := $(PY) -c 'from importlinter.cli import lint_imports_command as run; run()'
STAGE := sh tools/stage.sh
WORKERS ?= 2
# Who has run out of tests takes some from another: a few of them take minutes.
SPREAD = -n $(WORKERS) --dist worksteal
PYTEST_ARGS ?=
# Which sample of the larger tests runs (tests/tiers.py): successive commits run different ones.
ROTATION := $(or $(shell git rev-list --count HEAD 2>/dev/null),0)
export RUNYARD_ROTATION ?= $(ROTATION)
# One run of 10 of the hundred seeds: ten successive commits run them all.
SEEDS ?= 10
FIRST_SEED ?= $(shell expr 1 + $(RUNYARD_ROTATION) % 10 '*' 10)
BUDGET ?=
LANES = MAKE='$(MAKE)' $(PY) tools/lanes.py
# Tests and simulations keep their databases and directories in memory, where there is enough of it.
IN_MEMORY := sh tools/in_memory.sh

# The user's shell settings must not leak into the environment that the lock file describes.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_USER PIP_TARGET PIP_PREFIX
# Without bytecode each of the hundreds of processes that the tests start compiles every module again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONUTF8 := 1

# An installed command knows its own address: after the directory was moved or copied, runyard is
# installed into it once more (without the network). The tools are always called as modules of $(PY).
ifneq ($(shell test ! -e .venv/where || test "$$(cat .venv/where)" = "$$(pwd)" || echo moved),)
$(shell rm -f .venv/ready)
endif

help: ## List the targets (the default)
	@echo "runyard: a self-healing CI runner fleet for macOS and Linux"
	@echo
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | \
	  while IFS='|' read -r target text; do printf '%-16s %s\n' "$$target" "$$text"; done
	@echo
	@echo "  Settings: PYTHON=/path/to/python3.x  WORKERS=$(WORKERS)  PYTEST_ARGS='-k name'"

demo: .venv/ready ## Run 20 real jobs on this machine, with faults, and count what is left
	@$(RUNYARD) up --demo

sim: .venv/ready ## Watch a simulated fleet live through two hours with faults
	@$(RUNYARD) sim --seed 1 --hours 2 --demo

# A third of the time of these tests is waiting for processes, so three workers are faster than two on two cores.
test: WORKERS = 3
test: .venv/ready ## Run the fast tests (under 4 minutes on two cores)
	@RUNYARD_TIER=fast $(IN_MEMORY) $(PY) -m pytest $(SPREAD) --ignore=tests/laws -m "not slow and not long" $(PYTEST_ARGS)

kube-assets: ## Build a real Kubernetes control plane for the tests, once, into the user's cache
	@sh tools/kube_assets.sh

helm: .venv/ready ## Fetch the pinned helm for the tests, once, into the user's cache
	@$(PY) tools/helm.py

# These promise all of their tests, so they run them at full size.
conformance test-dispatch test-node test-xcresult: export RUNYARD_TIER = long

conformance: .venv/ready ## Hold the embedded Kubernetes API against a real one, if there is one; counts by server
	@$(PY) tools/controlplane.py --version
	@$(PY) -m pytest -n $(WORKERS) -p no:randomly tests/conformance $(PYTEST_ARGS)

test-all: .venv/ready ## Run every test but the long ones, the proof of the slot state machine and a sample of the seeds (under 30 minutes)
	@$(STAGE) "system packages" sh tools/system.sh
	-@$(STAGE) "real Kubernetes" sh tools/kube_assets.sh
	-@$(STAGE) "helm" $(PY) tools/helm.py
	@$(PY) tools/controlplane.py --version
	@$(LANES) "stage-tests" "stage-proof stage-seeds"

test-long: .venv/ready ## Run everything: all tests at full size, all seeds, benches; goes on where it was interrupted
	@MAKE='$(MAKE)' $(PY) tools/long_tests.py $(LONG_ARGS)

check: .venv/ready ## Lint, format, types for Linux and macOS, import rules, laws of the repository, commits
	@$(LANES) "stage-lint stage-format stage-imports stage-laws stage-commits" "stage-types-linux stage-types-darwin"

# One stage each, for the lanes above.
.PHONY: stage-tests stage-proof stage-seeds stage-lint stage-format stage-types-linux stage-types-darwin stage-imports stage-laws stage-commits

stage-tests:
	@RUNYARD_TIER=ci $(STAGE) "tests" $(IN_MEMORY) $(PY) tools/budget.py $(BUDGET) -- \
	  $(PY) -m pytest $(SPREAD) --ignore=tests/laws -m "not long" $(PYTEST_ARGS)

stage-proof:
	@$(STAGE) "proof of the slot state machine" $(RUNYARD) prove

stage-seeds:
	@$(STAGE) "simulation, $(SEEDS) seeds of one hour from $(FIRST_SEED)" \
	  $(IN_MEMORY) $(RUNYARD) sim --seed $(FIRST_SEED) --seeds $(SEEDS) --hours 1 --workers 1

stage-lint:
	@$(STAGE) "ruff check" $(PY) -m ruff check .

stage-format:
	@$(STAGE) "ruff format" $(PY) -m ruff format --check .

stage-types-linux:
	@$(STAGE) "mypy for linux" $(PY) tools/typecheck.py linux

stage-types-darwin:
	@$(STAGE) "mypy for darwin" $(PY) tools/typecheck.py darwin

stage-imports:
	@$(STAGE) "import rules" $(LINT_IMPORTS) --no-logo

stage-laws:
	@$(STAGE) "laws" $(PY) -m pytest -q -p no:randomly $(SPREAD) tests/laws

stage-commits:
	@$(STAGE) "commits" $(PY) tools/commits.py

prove: .venv/ready ## Explore every reachable state of the slot state machine
	@$(RUNYARD) prove

bench: .venv/ready ## Measure; benches hold ratios against limits measured in the same run
	@$(PY) -m pytest benches -q -s -p no:randomly $(PYTEST_ARGS)

bench-kube: .venv/ready ## Measure the Kubernetes client and the embedded API against a real one; fails on a miss
	@$(PY) -m benches.kube.run $(PODS)

bench-dispatch: .venv/ready ## Measure dispatch over real HTTP with real server processes; fails on a miss
	@$(PY) -m benches.dispatch.run $(BENCH_ARGS)

bench-node: .venv/ready ## Measure the node agent with 50 Pods on 25 hosts: start overhead, memory, idle CPU; fails on a miss
	@$(PY) -m benches.node.run $(BENCH_ARGS)

test-dispatch: .venv/ready ## Run all tests of dispatch and recovery, the slow ones, the incidents and the fuzz included
	@status=0; \
	$(STAGE) "dispatch, GitHub" $(PY) -m pytest $(SPREAD) tests/dispatch tests/github $(PYTEST_ARGS) || status=1; \
	$(STAGE) "crashes of real servers" $(PY) -m pytest $(SPREAD) tests/recovery $(PYTEST_ARGS) || status=1; \
	$(STAGE) "incidents" $(PY) -m pytest $(SPREAD) tests/sim/fleet/test_fleet_scenarios.py \
	  tests/sim/fleet/test_fleet_explained.py $(PYTEST_ARGS) || status=1; \
	exit $$status

# The first stage prints the driver contract's table: each driver with each case.
test-node: .venv/ready ## Run all tests of the node agent and its VM drivers, and 20 jobs in VMs; prints driver × case of their contract
	@status=0; \
	RUNYARD_CONTRACT_TABLE=1 $(STAGE) "VM drivers" $(PY) -m pytest $(SPREAD) tests/vm $(PYTEST_ARGS) || status=1; \
	$(STAGE) "node agent" $(PY) -m pytest $(SPREAD) tests/node $(PYTEST_ARGS) || status=1; \
	$(STAGE) "20 jobs in VMs" $(PY) -m pytest -q tests/embedded/up/test_up_tart.py $(PYTEST_ARGS) || status=1; \
	exit $$status

bench-help: .venv/ready ## Measure --help of every command against importing click and rich; fails on a miss
	@$(PY) -m benches.cli.help

bench-xcresult: .venv/ready ## Measure reading result bundles: speed, memory, attachments, processing; fails on a miss
	@$(PY) -m benches.xcresult.run $(BENCH_ARGS)

test-xcresult: .venv/ready ## Run all tests of result bundles, the slow and the long ones, the fuzz and the real bundles included
	@status=0; \
	$(STAGE) "result bundles" $(PY) -m pytest $(SPREAD) tests/xcresult tests/cli/test_xcresult_*.py $(PYTEST_ARGS) || status=1; \
	$(STAGE) "object storage" $(PY) -m pytest $(SPREAD) tests/blobs $(PYTEST_ARGS) || status=1; \
	exit $$status

recovery-table: .venv/ready ## Kill the server process at each of its effects, measure until rest, write docs/recovery.md
	@$(PY) -m benches.recovery.run

recovery-many: .venv/ready ## Run 10,000 jobs while servers and the database are killed; every job once, no budget exceeded
	@$(PY) -m benches.recovery.many

fmt: .venv/ready ## Format the code and apply the linter's safe fixes
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

docs: .venv/ready ## Generate the tables of docs/metrics.md, and add new public names to the list of frozen ones
	@$(PY) tools/metrics_doc.py
	@$(PY) tools/frozen_names.py

package: .venv/ready ## Install runyard into clean environments with pip, and print size and time of --help (needs the network)
	@sh tools/package.sh $(PY)

lock: ## Resolve pyproject.toml into the lock files (needs uv and the network)
	@sh tools/lock.sh

clean: ## Remove the virtual environment, caches and build products
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	rm -rf src/*.egg-info
	find src tests tools -type d -name __pycache__ -prune -exec rm -rf {} +

# The packages: only when the lock changes. This is the one step that needs the network.
.venv/locked: requirements-dev.lock tools/setup.sh
	@python="$$(PYTHON='$(PYTHON)' MAKE=make sh tools/preflight.sh)" && sh tools/setup.sh "$$python"
	@touch $@

# The project itself: from this directory, with the pinned build backend, from no index.
.venv/ready: .venv/locked pyproject.toml
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation -e .
	@pwd > .venv/where
	@touch $@
