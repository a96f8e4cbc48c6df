# Every command of the project. A line "target: ## text" is what `make help` prints.

.POSIX:
.SUFFIXES:
.PHONY: help model-list model-shares long-training demo quick test check format-check lint types dependencies pytest library \
	reproduction compiled distributed seeded-faults nightly nightly-tests nightly-compiled campaign coverage mutation \
	numbers docs site-check docs-serve gallery bench wheel-test torch-versions import-time kill-runs clean

BIN = .venv/bin
DEMO = .venv/.ready-demo
DEV = .venv/.ready-dev
# One thread a process and two processes: more than that only wait for each other.
WORKERS = 2
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)
# The tracer of torch.compile cannot follow the wrappers that enforce shapes and types.
PLAIN = ORTHONORM_TYPECHECK=0 $(PYTEST)
GALLERY = propagation spectra filters robustness lipschitz deep wgan_gp fine_tune gallery

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

demo: $(DEMO) ## Train orthogonal and plain networks on real digits and compare them (main job)
	$(BIN)/orthonorm-paper demo

# Not the tests with other libraries (tests/loaders): to import those takes as long as many tests.
quick: format-check lint ## Run format, lint and the library's fast tests (two minutes): what one runs while working
	ORTHONORM_HYPOTHESIS=quick $(PYTEST) -q -m "not (slow or ranks or docs or compiled or nightly)" --ignore tests/loaders src tests

test: check docs pytest seeded-faults ## Run all that guards a user: checks, site, tests, seeded faults (15 minutes)

check: format-check lint types dependencies ## Run the static checks only: format, lint, types, dependencies

format-check: $(DEV)
	$(BIN)/ruff format --check .

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/python tools/glossary.py

types: $(DEV)
	$(BIN)/basedpyright --pythonpath $(BIN)/python

dependencies: $(DEV)
	$(BIN)/python -m pip check

pytest: compiled ## Run the tests: a few that compile, then all others with shapes and types enforced
	$(PYTEST) -m "not compiled and not nightly"

# The parts of `pytest`, as CI runs them side by side.
library: $(DEV)
	$(PYTEST) -m "not (ranks or compiled or nightly)" src tests

reproduction: $(DEV)
	$(PYTEST) -m "not (compiled or nightly)" reproduction benchmarks tools

compiled: $(DEV)
	$(PLAIN) -m "compiled and not nightly" tests

distributed: $(DEV)
	$(PYTEST) -m "ranks and not (compiled or nightly)" tests

# Which: words of names or places, as in `make seeded-faults WORDS="scale squared"`.
seeded-faults: $(DEV) ## Break the code on purpose, fault by fault: each must turn its test red
	PYTHONPATH=tools $(BIN)/python -m seeded_faults $(WORDS)

nightly: nightly-tests nightly-compiled campaign wheel-test ## Run what `make test` leaves out: campaign, peers, compiled, wheel

nightly-tests: $(DEV)
	$(PYTEST) -m "nightly and not compiled"

nightly-compiled: $(DEV)
	$(PLAIN) -m "nightly and compiled" tests

coverage: $(DEV) ## Measure which lines of the library its tests run, and write build/coverage
	$(PYTEST) -m "not (compiled or nightly)" --cov=orthonorm --cov-report=term-missing:skip-covered \
	--cov-report=html:build/coverage src tests

mutation: $(DEV) ## Mutate MODULE (default: how rows are cut into groups) and list what no test notices; for a release
	$(BIN)/python tools/mutation.py $(MODULE)

# Without the wrappers that enforce types, as the library runs; one process, which counts for all.
campaign: $(DEV) ## Attack the library with thousands of hostile weights (a quarter of an hour), and write the figures
	OMP_NUM_THREADS=1 ORTHONORM_TYPECHECK=0 ORTHONORM_HYPOTHESIS=nightly \
	ORTHONORM_CAMPAIGN_FIGURES=docs/campaign.json $(BIN)/python -m pytest --timeout=3600 \
	tests/campaign/test_map.py tests/campaign/test_damaged_together.py tests/campaign/test_layers.py \
	tests/campaign/test_half.py tests/campaign/test_convolutions.py
	$(BIN)/python tests/campaign/page.py

model-shares: $(DEV) ## Count what of 100 real architectures becomes orthogonal (a minute), and write docs/what-works.md
	OMP_NUM_THREADS=1 $(BIN)/python tools/model_shares.py
	$(BIN)/python tools/what_works.py

model-list: $(DEV) ## Convert, train and fold 100 real architectures (half an hour), and write docs/what-works.md
	OMP_NUM_THREADS=1 $(BIN)/python tools/model_list.py
	$(BIN)/python tools/what_works.py

long-training: $(DEV) ## Train for 20,000 steps in six ways and draw what becomes of W and V (ten minutes)
	$(BIN)/python tools/long_training.py

numbers: $(DEV) ## Fill the numbers that pages quote from the committed records
	$(BIN)/python tools/quoted_numbers.py

docs: $(DEV) ## Build the site into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

site-check: docs ## Open every page of the site in Chromium: console, links, pictures, width
	$(BIN)/python tools/site_check.py site

docs-serve: $(DEV) ## Serve the site on this machine, and build it again at each change
	$(BIN)/python -m mkdocs serve

gallery: $(DEV) ## Run the scripts of the gallery and write their pictures and numbers into docs/gallery
	@for script in $(GALLERY); do echo $$script; OMP_NUM_THREADS=1 $(BIN)/python examples/$$script.py || exit 1; done

bench: $(DEV) ## Measure accuracy and speed, peer libraries beside
	$(BIN)/python -m benchmarks

wheel-test: $(DEV) ## Run the tests on what the built wheel installs, outside the checkout (half an hour)
	$(BIN)/python tools/wheel.py

torch-versions: $(DEV) ## Run the tests with the oldest supported torch and the newest (an hour, 15 GB in build/)
	$(BIN)/python tools/torch_versions.py

kill-runs: $(DEV) ## Kill a sweep and a long run 20 times each, at random moments, and compare their records
	OMP_NUM_THREADS=1 $(BIN)/python tools/kill_runs.py

import-time: $(DEV) ## Measure what importing the library adds to importing torch
	$(BIN)/python tools/import_time.py

clean: ## Remove the environment and all that is generated, but results
	rm -rf .venv build dist site .pytest_cache .ruff_cache .hypothesis .benchmarks
	find src tests reproduction benchmarks tools examples -name __pycache__ -type d -prune -exec rm -rf {} +

# What `demo` needs is part of what `test` needs, so the first file only says "at least this".
$(DEMO): pyproject.toml reproduction/pyproject.toml constraints.txt
	@if [ -e $(DEV) ]; then .ci/environment dev,docs && touch $(DEV); else .ci/environment; fi
	@touch $@

$(DEV): pyproject.toml reproduction/pyproject.toml constraints.txt
	@.ci/environment dev,docs
	@touch $(DEMO) $@
