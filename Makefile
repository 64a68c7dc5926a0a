# Every target builds the virtual environment it needs; nothing has to be installed by hand but Python 3.11-3.13.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIVE := .live
WITH_LIVE := KVGYM_LIVE_PYTHON=$(abspath $(LIVE)/bin/python)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests that need no compiled engine.
FAST := tests/test_layers.py tests/scripts/test_make_docs.py tests/config/test_loader.py tests/test_records.py \
	tests/harness/compare/test_grid.py tests/harness/compare/test_overrides.py tests/harness/measure/test_statistics.py

.PHONY: quickstart test soak docs test-live check live route-demo bench prove-plugins serving vllm chromium announce clean

quickstart: $(VENV)/.lean
	$(BIN)/kvgym compare configs/compare/quickstart.yaml

test: announce $(VENV)/.dev serving vllm chromium
	$(WITH_LIVE) scripts/test.sh $(BIN)/python

# Before a release: also what is marked soak, and four times the random cases.
soak: $(VENV)/.dev serving vllm chromium
	$(WITH_LIVE) scripts/test.sh $(BIN)/python --soak

announce:
	@echo "make test: installs .venv, .live (SGLang on the CPU) and .vllm where they are absent or old: some minutes;"
	@echo "then all tests, those with real servers beside the others: about ten minutes on two quiet cores."

# Only those that start, kill and stop real servers.
test-live: $(VENV)/.dev serving
	$(WITH_LIVE) $(BIN)/python -m pytest -ra -m live

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m "not slow" $(FAST)

# Real servers on the CPU beside the simulator.
live: $(VENV)/.live serving
	$(WITH_LIVE) $(BIN)/kvgym compare configs/compare/live_cpu.yaml

# Real servers on the CPU behind kvgym route, with SGLang's own bench_serving as the client.
route-demo: $(VENV)/.live serving
	$(WITH_LIVE) $(BIN)/python scripts/route_demo.py

# The site in site/: pages made from docstrings, then everything, warnings as errors.
docs: $(VENV)/.docs
	$(BIN)/python scripts/make_docs.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# A router, an eviction policy, a reward and a workload are added to a copy of the tree: one file, one line, one test.
prove-plugins: $(VENV)/.dev
	$(BIN)/python scripts/prove_plugins.py

bench: $(VENV)/.lean
	$(BIN)/kvgym bench

# An environment of its own, so that SGLang's pins never meet ours; the script does nothing when it is up to date.
serving:
	PYTHON=$(PYTHON) scripts/setup_live.sh $(LIVE)

# vLLM's scheduler, as a truth that runs without a GPU.
vllm: serving
	scripts/setup_vllm.sh .vllm $(LIVE)/bin/python

# For the tests of the report's page; says why where it can't be had, then those are skipped.
chromium:
	scripts/setup_chromium.sh

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp is older than what it was made from exactly when the environment has to be brought up to date.
$(VENV)/.lean: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[data]'
	touch $@

$(VENV)/.live: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[data,live,route]'
	touch $@ $(VENV)/.lean

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[data,live,route,train,dev]'
	touch $@ $(VENV)/.lean $(VENV)/.live

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(LIVE) .vllm results
