# KEPL. `make` lists what there is. Every target builds .venv first if it is missing.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
ACCEL ?= cpu
PROFILE ?= small
VENV := $(CURDIR)/.venv
VENV_PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed-$(ACCEL)

export PYTHONPATH := $(CURDIR)
export PYSTOW_HOME := $(CURDIR)/.cache/pystow
export MLFLOW_DISABLE_TELEMETRY := true
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false
export PYTHONUNBUFFERED := 1

GENERATOR := TARGET PROMPT NAMES BEAMS FINISH SCORE CANDIDATES TOKENS BY
FINETUNE := $(foreach v,$(GENERATOR) HITS K MODEL SEEDS SEED CKPT PROFILE FOLDS EPOCHS MIRROR DATA DEVICES PRECISION FRESH ARGS,$(if $($(v)),$(v)="$($(v))"))
EVALUATE := $(foreach v,$(filter-out TARGET PROMPT,$(GENERATOR)) MODEL CKPT SPLIT POOLING SIMILARITY MAX_LENGTH PRECISION BACKOFF NORMALISE ABBREVIATIONS TRAIN_NAMES COMPOSITE NIL GRAPH BACKEND INDEX FOLDS MIRROR DATA DEVICE,$(if $($(v)),$(v)="$($(v))"))
FIGURES := $(if $(filter command,$(firstword $(origin PROFILE))),PROFILE="$(PROFILE)") $(foreach v,TASK OF SPLIT MIRROR MODEL CKPT BASE PAIRS LINKED GRAPH THESAURUS SEGMENTS SENTENCES WINDOW LEAST LAYER2 LAYER3 PICK2 PICK3 OUT METHOD POOLING CONCEPTS BATCHES SEED DEVICE,$(if $($(v)),$(v)="$($(v))"))
SETTINGS := $(foreach v,GRAPH UMLS CORPUS ENCODER LINKER MIRROR SEED FRESH ARMS DEVICES NODES PRECISION WORKERS ARGS PLAN,$(if $($(v)),$(v)="$($(v))"))

.PHONY: help setup finetune evaluate table figures cases synonyms probe sweep data compare counts overlap dashboard speed test test-slow lint types contracts check docs

help:  ## list the targets
	@echo "usage: make TARGET [NAME=VALUE ...]"
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## (.*)/\1\t\2/' | awk -F'\t' '{printf "  %-20s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@test -x $(VENV_PYTHON) || $(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; give another one: make setup PYTHON=python3.11")'
	@test -x $(VENV_PYTHON) || $(PYTHON) -m venv $(VENV)
	@echo "setting up .venv (once, a few minutes; 2.1 GB on disk with the CPU build of torch, several GB more with CUDA)"
	@if [ "$(ACCEL)" != cpu ] && [ "$(ACCEL)" != gpu ]; then echo "error: ACCEL=$(ACCEL); choose from: cpu, gpu" >&2; exit 2; fi
	$(VENV_PYTHON) -m pip install --quiet --no-compile --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt \
	  torch==$$(sed -n 's/^torch==//p' constraints.txt) $$($(VENV_PYTHON) bin/requirements.py $(ACCEL) scispacy dev)
	@$(VENV_PYTHON) -m compileall -q -j 0 $(VENV)/lib > /dev/null; true  # on all cores; some packages carry templates that are no Python
	@rm -f $(VENV)/.installed-*; touch $@

setup: $(STAMP)  ## build .venv from the pinned constraints (ACCEL=cpu|gpu, TORCH_INDEX=URL, PYTHON=python3.11)

pretrain-%: $(STAMP)  ## pretrain-<paper>: graph, embeddings, linked corpus, pre-training (PROFILE=small|paper, GRAPH UMLS CORPUS ENCODER MIRROR DEVICES NODES PRECISION SEED FRESH ARMS ARGS; PLAN=1 only prints the stages)
	@$(VENV_PYTHON) -m experiments.pretrain $* --profile $(PROFILE) $(SETTINGS)

kg-%: $(STAMP)  ## kg-<graph>_<model>: graph and its embedding, as experiments/kg/<graph>_<model>.yaml has them (PROFILE=small|paper GRAPH SEED FRESH)
	@$(VENV_PYTHON) -m experiments.pretrain kg/$* --profile $(PROFILE) $(SETTINGS)

finetune: $(STAMP)  ## fine-tune and score an encoder on a task (TASK= MODEL= SEEDS= PROFILE=small|paper MIRROR= DATA= CKPT= HITS= K= DEVICES= PRECISION= FRESH ARGS)
	@$(VENV_PYTHON) -m benchmarks.run finetune $(TASK) $(FINETUNE)

evaluate: $(STAMP)  ## score an entity linker beside both string floors (TASK= MODEL= POOLING=cls|mean SPLIT= BACKOFF= TRAIN_NAMES= GRAPH= MIRROR= …)
	@$(VENV_PYTHON) -m benchmarks.run evaluate $(TASK) $(EVALUATE)

table: $(STAMP)  ## a paper's table, reported beside measured (PAPER= TABLE= SPLIT= FOLDS= PROFILE= SAMPLES= GRAPH= MIRROR= …; RUN=1 SEEDS= first makes the missing runs)
	@$(VENV_PYTHON) -m benchmarks.run table $(PAPER) $(TABLE) $(foreach v,SPLIT FOLDS PROFILE SAMPLES GRAPH MODEL CKPT LIMIT SEED METHOD MASKS BEAM MIRROR OUT RUN SEEDS,$(if $($(v)),$(v)="$($(v))"))

cases: $(STAMP)  ## what a scored linker gets wrong, most frequent first (TASK= OF=<label> SPLIT= TOP= MIRROR=)
	@$(VENV_PYTHON) -m benchmarks.run cases $(TASK) $(foreach v,OF SPLIT TOP FOLDS GRAPH MIRROR DATA,$(if $($(v)),$(v)="$($(v))"))

figures: $(STAMP)  ## a paper's figures (PAPER= MODEL= BASE= PAIRS= OUT= METHOD=tsne|umap; LINKED= SENTENCES= PICK2= …; or TASK= OF= PROFILE= of scored runs)
	@$(VENV_PYTHON) -m benchmarks.run figures $(PAPER) $(FIGURES)

synonyms: $(STAMP)  ## which of 20 names means the same, by any encoder or word vectors (MODEL= SAMPLES= LINKED= KNOWLEDGE=no)
	@$(VENV_PYTHON) -m benchmarks.run synonyms $(foreach v,MODEL CKPT SAMPLES LINKED POOLING SIMILARITY PRECISION KNOWLEDGE FREQUENT SEED DEVICE,$(if $($(v)),$(v)="$($(v))"))

probe: $(STAMP)  ## fill-in queries of a graph's triples, by any masked LM (GRAPH=hpo|medlama|<folder> MODEL= METHOD=beam|confidence MASKS= BEAM= LIMIT= SEED= MIRROR=)
	@$(VENV_PYTHON) -m benchmarks.run probe $(foreach v,GRAPH MODEL CKPT METHOD MASKS BEAM PROMPTS SPECIAL LIMIT SEED SIZE MIRROR DEVICE,$(if $($(v)),$(v)="$($(v))"))

sweep: $(STAMP)  ## a grid of runs under one parent in MLflow, resumable (CONFIG=<file> AT_ONCE= FRESH=)
	@$(VENV_PYTHON) -m benchmarks.sweep "$(CONFIG)" $(if $(AT_ONCE),--at-once $(AT_ONCE)) $(if $(FRESH),--fresh)

data: $(STAMP)  ## fetch and verify a task's files (TASK= MIRROR=)
	@$(VENV_PYTHON) -m datamodules.sources $(TASK) $(foreach m,$(MIRROR),--mirror "$(m)")

compare: $(STAMP)  ## every encoder scored on a task, with paired tests (TASK=<task>|synonyms BASE=<encoder> PROFILE= SAMPLES=)
	@$(VENV_PYTHON) -m benchmarks.run compare $(TASK) $(foreach v,PROFILE SAMPLES BASE,$(if $($(v)),$(v)="$($(v))"))

counts: $(STAMP)  ## sizes of every split at hand beside the papers' (MIRROR=)
	@$(VENV_PYTHON) -m benchmarks.run counts $(TASK) MIRROR="$(MIRROR)"

overlap: $(STAMP)  ## annotated mentions of NER and RE sets that a graph knows (TASK= GRAPH=hpo|<folder>, or MODEL=kebiolm, MIRROR=)
	@$(VENV_PYTHON) -m benchmarks.run overlap $(TASK) $(foreach v,GRAPH MODEL CKPT MIRROR,$(if $($(v)),$(v)="$($(v))"))

dashboard: $(STAMP)  ## compare runs in MLflow on http://127.0.0.1:5000 (PORT=)
	@MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false $(VENV)/bin/mlflow ui --workers 1 --host 127.0.0.1 --port $(or $(PORT),5000) \
	  --backend-store-uri "$$($(VENV_PYTHON) -c 'from core.tracking import tracking_uri; print(tracking_uri())')"

speed: $(STAMP)  ## speed ratios against plain references (NAME=linking|entity_softmax|finetune_batches|miner|retrieval|...; all without)
	@for n in $(or $(NAME),$$(ls benchmarks/speed | sed -n 's/^\([a-z][a-z_]*\)\.py$$/\1/p')); do $(VENV_PYTHON) -m benchmarks.speed $$n --json || exit 1; done

docs: $(STAMP)  ## the pages of docs/ as HTML, in docs/_build
	@$(VENV_PYTHON) -m sphinx -q -W --keep-going -b html docs docs/_build && echo docs/_build/index.html

test: $(STAMP)  ## tests that need no GPU and no long training (TESTS_AT_ONCE=2, one core each)
	@OMP_NUM_THREADS=1 $(VENV_PYTHON) -m pytest -n $(or $(TESTS_AT_ONCE),2) --dist worksteal $(ARGS)

test-slow: $(STAMP)  ## the slow tests, for a nightly run
	@$(VENV_PYTHON) -m pytest -m slow $(ARGS)

lint: $(STAMP)  ## ruff
	@$(VENV_PYTHON) -m ruff check .

types: $(STAMP)  ## mypy
	@$(VENV_PYTHON) -m mypy

contracts: $(STAMP)  ## who may import whom
	@$(VENV)/bin/lint-imports

check: lint types contracts test  ## lint, types, import contracts, tests
