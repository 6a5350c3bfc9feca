# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs: .venv, uv inside it, the pinned requirements.
# A second run does no work twice.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEED ?=
PYTEST_FLAGS ?=
PYTEST := $(BIN)/python -m pytest $(PYTEST_FLAGS)
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make requirements"

# pytest-randomly prints its seed; `make test SEED=123` plays it again.
SEEDED := $(if $(SEED),-p randomly --randomly-seed=$(SEED),)

# Container images often forbid bytecode files. Tests start hundreds of programs, and each would
# compile all of our modules again: a third of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-real test browser e2e e2e-real e2e-real-short e2e-full fresh check format mutants bench zoo arena soak controlplane docs sbom vendor requirements clean go-present prometheus-present

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv with the pinned requirements

$(READY): requirements.txt requirements-dev.txt requirements-bootstrap.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "python3 is missing: install Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$$($(PYTHON) --version) is too old: install Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "python3 cannot make virtual environments: install the python3-venv package"; exit 1; }
	@test -x $(BIN)/python || { echo "· making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "· installing the pinned requirements (half a minute, or two on a slow line)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bootstrap.txt
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --compile-bytecode --require-hashes requirements-dev.txt requirements-bootstrap.txt
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## Watch a simulated cluster get hot and become level (SCENARIO=name, KEEP=1)
	@$(BIN)/python -m simulator demo $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(KEEP),--keep)

demo-real: $(READY) go-present ## Run the demo on a real control plane (built once, about 20 minutes)
	@$(BIN)/python -m simulator demo --real $(if $(SCENARIO),--scenario $(SCENARIO)) $(if $(KEEP),--keep)

test: $(READY) ## Run the unit, integration and fault tests in parallel (SEED=n repeats an order)
	@$(PYTEST) -n auto --dist worksteal --durations=20 $(SEEDED) tests/unit tests/integration tests/faults

browser: $(READY) ## Run the tests of the console in Chromium
	@$(PYTEST) -p no:xdist --durations=10 tests/browser

# Two control planes: the tests wait for kubelets, leases and samples most of the time.
E2E := $(PYTEST) -n 2 --dist loadfile

e2e: $(READY) go-present prometheus-present ## Run the tests on two real control planes, one seed per scenario
	@$(BIN)/python -m controlplane build
	@$(E2E) --durations=10 -rs -m "not real_nodes" tests/e2e tests/conformance

e2e-real: $(READY) go-present ## Run all tests on real kubelets, containerd and runc (needs root)
	@$(BIN)/python -m controlplane build --real-nodes
	@$(PYTEST) -p no:xdist --durations=10 -rs tests/e2e/real_nodes

e2e-real-short: $(READY) go-present ## Run those of these tests that CI runs, about 5 minutes
	@$(BIN)/python -m controlplane build --real-nodes
	@$(PYTEST) -p no:xdist --durations=10 -rs -m "not e2e_real" tests/e2e/real_nodes

e2e-full: $(READY) go-present prometheus-present ## Run the same tests with all seeds (SEEDS=6,7,8 selects others)
	@$(BIN)/python -m controlplane build
	@$(E2E) --durations=10 -rs -m "not real_nodes" --all-seeds $(if $(SEEDS),--seeds $(SEEDS)) tests/e2e tests/conformance

fresh: ## Run `make demo` and `make test` in a fresh clone with an empty home, and print the times
	@.ci/fresh

check: $(READY) ## Check format, lint, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --cache-dir $(VENV)/.import-linter

format: $(READY) ## Format the code and fix what the linter can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

mutants: $(READY) ## Remove each registry entry in turn and expect a failing test
	@$(BIN)/python -m tests.mutants

bench: $(READY) ## Run the benchmarks; they print ratios
	@for file in $$(grep -l __main__ bench/*.py); do echo "== $$file"; $(BIN)/python -m "$$(echo "$${file%.py}" | tr / .)" || exit 1; done

zoo: $(READY) ## Compare plans for ordinary clusters with the optimum (SEEDS=n, ten by default)
	@$(BIN)/python -m bench.zoo --seeds $(or $(SEEDS),10) --seconds 20

arena: $(READY) go-present ## Compare Evenkeel and descheduler on a real control plane
	@$(BIN)/python -m controlplane build
	@$(BIN)/python -m bench.arena

soak: $(READY) ## Run the extender under load for ten minutes and check that nothing grows
	@$(BIN)/python -m bench.soak

controlplane: $(READY) go-present ## Build the real control plane's binaries (once, about 20 minutes)
	@$(BIN)/python -m controlplane build

docs: $(READY) ## Generate the pages and files that come from code
	@$(BIN)/python -m common.config > docs/configuration.md
	@$(BIN)/python -m rebalancer.report > docs/plan.schema.json
	@$(BIN)/python -m extender.scoring.plot > docs/scoring.svg
	@$(BIN)/python -m extender.openapi > docs/extender.openapi.json
	@$(BIN)/python deploy/helm/generate.py
	@$(BIN)/python -m tests.support.docs.command_page
	@$(BIN)/python -m tests.support.docs.policy_page

sbom: $(READY) ## Print the software bill of materials of the image (CycloneDX)
	@$(BIN)/python deploy/sbom.py

vendor: $(READY) ## Fetch the console's third-party browser files from the npm registry, and check them
	@command -v npm >/dev/null || { echo "npm is missing: install it (Debian: apt-get install npm)"; exit 1; }
	@$(BIN)/python -m console.vendor console/static/vendor tests/browser/vendor

requirements: $(READY) ## Pin the requirements again
	@$(COMPILE) pyproject.toml --output-file requirements.txt
	@$(COMPILE) pyproject.toml --extra dev --constraint requirements.txt --output-file requirements-dev.txt
	@echo uv | $(COMPILE) - --output-file requirements-bootstrap.txt

clean: ## Remove everything that was built in this folder
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .pytest_cache .coverage htmlcov dist build *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

go-present:
	@command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer (for the real control plane)"; exit 1; }

prometheus-present:
	@command -v prometheus >/dev/null || { echo "prometheus is missing: install it (Debian: apt-get install prometheus)"; exit 1; }
