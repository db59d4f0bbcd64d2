# make quickstart | evidence RAW_DIR=DIR | install ACCELERATOR=cpu|cuda12|cuda13|tpu
# make dev | test | test-all | check | docs; CONTRIBUTING.md has the others
PYTHON ?= python3
VENV ?= .venv
ACCELERATOR ?= cpu
ifeq ($(filter $(ACCELERATOR),cpu cuda12 cuda13 tpu),)
$(error ACCELERATOR=$(ACCELERATOR): cpu, cuda12, cuda13 or tpu)
endif
# Every process here imports JAX, which takes half the time where .venv keeps its bytecode.
export PYTHONDONTWRITEBYTECODE =
RUN = runs/quickstart
DATA = data
BIN := $(VENV)/bin
# uv installs in 16 s what takes pip 70. It does not read pip's settings (a mirror, say), so
# where it cannot install, pip does; but pip has no lowest versions (UV_RESOLUTION).
PIP = $(BIN)/python -m pip install -q --disable-pip-version-check
with_uv = $(BIN)/uv pip install -q --python $(BIN)/python $(1) || { [ -z "$$UV_RESOLUTION" ] && $(PIP) $(1); }
# pytest-xdist: tests that stand together use the same prepared corpora, so one worker gets
# them. A worker that has run out takes tests of others.
PARALLEL := -n auto --dist worksteal

.PHONY: install dev quickstart evidence test test-all native kernels mutants check docs lock

install: $(VENV)/.installed.$(ACCELERATOR)

dev: $(VENV)/.installed.tests
	@echo "One test file: $(BIN)/python -m pytest tests/scoring/test_bleu.py"

quickstart: install
	$(BIN)/python -m scripts.train --config=configs/quickstart.py --workdir=$(RUN) --data_dir=$(DATA)
	$(BIN)/python -m scripts.evaluate --workdir=$(RUN) --split=test --data_dir=$(DATA)
	$(BIN)/python -m scripts.report $(RUN) --data_dir=$(DATA)
	@echo "Where its heads look: $(BIN)/python -m scripts.plot_attention --workdir=$(RUN) --text='When did my sister wait for him?' --attention=cross --layers=2"

# Trains the runs of docs/table3.md on captions and of docs/multi30k.md again, from
# Multi30k's files in RAW_DIR, and scores each as its config says: about a day of two CPU
# cores. If it is stopped, the same command resumes it.
EVIDENCE = runs/evidence
SWEEP = $(BIN)/python -m scripts.sweep --workdir=$(EVIDENCE) --raw_dir=$(RAW_DIR)
# One device for each of two runs at a time; the published rows had 12 shapes of batches.
TWO := JAX_NUM_CPU_DEVICES=1 $(SWEEP) --jobs=2 --mini
AS_PUBLISHED := -- --config.decode_dtype=float32 --config.max_shapes=12
TEST := --split=test --average=10 -- --config.dtype=bfloat16
ROWS := base,D1,A1,C1,E,D3,B1,C2,D2,D4,A4,C6,B2,A3,A2,C7,C3,C4,C5
evidence: install
	@test -d "$(RAW_DIR)" || { echo "give RAW_DIR=DIR, a folder with Multi30k's files"; exit 1; }
	$(TWO) --rows=$(ROWS) --seeds=1,2 $(AS_PUBLISHED)
	$(TWO) --rows=base,D3 --seeds=3 $(AS_PUBLISHED)
	$(TWO) --rows=base --seeds=4,5 $(AS_PUBLISHED)
	$(SWEEP) --rows=big --mini --seeds=1 $(AS_PUBLISHED)
	$(SWEEP) --config=configs/multi30k.py:en-de,lowercase --seeds=1,2,3 $(TEST)
	$(SWEEP) --config=configs/multi30k.py:en-de --seeds=1 $(TEST)
	$(SWEEP) --config=configs/multi30k.py:en-de,lowercase --seeds=1,2,3 \
	  --workdir=$(EVIDENCE)/without_smoothing $(TEST) --config.epsilon_ls=0
	$(BIN)/python -m scripts.report $(EVIDENCE)/*.seed-* $(EVIDENCE)/without_smoothing/*.seed-* --samples=0 --html=$(EVIDENCE)/report.html

PYTEST := $(BIN)/python -m pytest $(PARALLEL)
# Most of the time goes to compiling, which takes less with few of XLA's optimizations.
# test-all runs the same tests with all of them.
QUICK := JAX_DISABLE_MOST_OPTIMIZATIONS=1 $(PYTEST)
# Tests of several devices run after the others, which compile for one. Only their files
# are read, for importing all takes seconds.
EIGHT := JAX_NUM_CPU_DEVICES=8
ABOUT_DEVICES := $(shell grep -rl 'mark\.devices' tests --include=test_*.py)
test: $(VENV)/.installed.tests
	$(QUICK) -m 'not slow and not torch and not devices' --durations=30
	$(EIGHT) $(QUICK) -m 'devices and not slow' $(ABOUT_DEVICES)
	@if test -e /dev/nvidia0 && ls -d $(VENV)/lib/*/site-packages/jax_plugins/xla_cuda* > /dev/null 2>&1; then $(MAKE) native; fi

# Tests of the kernels on an NVIDIA GPU that is here; runs/gpu/tests.json has the results.
native: $(VENV)/.installed.tests
	@rm -f runs/gpu/tests.json
	$(BIN)/python -m benchmarks.gpu --output=runs/gpu --only=tests

# All tests of the default suite, the long ones, and those that compare with PyTorch.
test-all: $(VENV)/.installed.torch
	$(BIN)/python -c 'import torch, transformers, ctranslate2, libtpu'  # else tests are skipped
	$(PYTEST) -m 'not devices' --durations=30
	$(EIGHT) $(PYTEST) -m devices $(ABOUT_DEVICES)
	$(MAKE) kernels VENV=$(VENV)-kernels

# Kernels are compiled for a GPU that is not here, in a virtual environment of their own:
# with the compiler in it JAX writes to stderr as it starts, which other tests read.
kernels: $(VENV)/.installed.kernels
	$(PYTEST) tests/scale/test_kernels.py

# Which changes to a room do its own tests notice?
ROOM = scoring
MINUTES = 100
mutants: $(VENV)/.installed.tests
	$(call with_uv,'mutmut==3.8.1')
	$(BIN)/python benchmarks/mutants.py $(ROOM) $(MINUTES)

check: $(VENV)/.installed.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info < (3, 14) or sys.exit("Python %d.%d is none of 3.11, 3.12 and 3.13: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV) || { rm -f $(BIN)/python; exit 1; }
	-$(PIP) --only-binary :all: uv

$(VENV)/.installed.cpu: requirements.txt | $(BIN)/python
	$(call with_uv,-r requirements.txt -e .)
	touch $@

# For NVIDIA's GPUs not before JAX 0.11.1, which Python 3.11 does not get: from 0.10.2 on XLA
# summed the embedding's gradient many times slower there (openxla/xla #46225).
$(VENV)/.installed.cuda12 $(VENV)/.installed.cuda13: $(VENV)/.installed.cuda%: requirements.txt | $(BIN)/python
	@$(BIN)/python -c 'import sys; sys.version_info >= (3, 12) or sys.exit("JAX for CUDA is slow on Python 3.11 (docs/devices.md): make install PYTHON=python3.12 VENV=.venv-gpu ...")'
	$(call with_uv,-r requirements.txt 'jax[cuda$*]>=0.11.1' -e .)
	touch $@

$(VENV)/.installed.tpu: requirements.txt | $(BIN)/python
	$(call with_uv,-r requirements.txt 'jax[tpu]' -e .)
	touch $@

$(VENV)/.installed.tests: requirements.txt tests/requirements.txt | $(BIN)/python
	$(call with_uv,-r tests/requirements.txt -e .)
	touch $@

# This torch first and alone: a range would bring gigabytes of CUDA packages. By pip, which
# finds the build for CPUs where its settings name one.
$(VENV)/.installed.torch: $(VENV)/.installed.tests
	$(PIP) 'torch==2.13.0'
	$(call with_uv,'transformers==5.*' 'jax[tpu]')  # to compile for TPUs; tests run on the CPU
	touch $@

$(VENV)/.installed.kernels: $(VENV)/.installed.tests
	$(call with_uv,'jax[cuda12-local]')
	touch $@

# The docs as a site, in site/, with the published model's page. A dead link is an error.
docs: install
	$(call with_uv,-r docs/requirements.txt)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -d site
	$(BIN)/python -m scripts.export --workdir=pretrained/tatoeba.en-de --format=page --output=site/translate.html

# Versions of all dependencies for Python 3.11 and newer, which CI installs
# (.ci/run sets PIP_CONSTRAINT and UV_CONSTRAINT to it).
lock: | $(BIN)/python
	$(BIN)/uv pip compile -q --no-config --universal --python-version 3.11 --upgrade --no-annotate \
	  --custom-compile-command 'make lock' -o requirements.lock \
	  requirements.txt tests/requirements.txt docs/requirements.txt \
	  pyproject.toml --extra topology-gpu
