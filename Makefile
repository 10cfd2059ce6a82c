# KEPL. `make` lists what there is. Every target builds .venv first if it is missing.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
ACCEL ?= cpu
SCISPACY ?= 1
VENV := $(CURDIR)/.venv
VENV_PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed-$(ACCEL)$(addprefix -,$(EXTRAS))

export PYTHONPATH := $(CURDIR)
export PYTHONSAFEPATH := 1
export PYSTOW_HOME := $(CURDIR)/.cache/pystow
export MLFLOW_DISABLE_TELEMETRY := true
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false
export PYTHONUNBUFFERED := 1

# Settings typed behind make reach kepl as they are: make leaves them in MAKEFLAGS, where `@make` lets kepl read them, and
# neither a shell nor a list in this file is between. Unexported, since make itself would run a $(shell ...) in an exported value.
$(foreach v,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $v))),$(eval unexport $v)))
KEPL := $(VENV_PYTHON) -P -m app.cli

VERBS := finetune rerank predict link embed evaluate peers compare curve knowledge table figures cases synonyms probe overlap counts data sweep serve demo dashboard tasks publish results sync push onnx register convert
.PHONY: help setup $(VERBS) results-check gpu-check gpu-wheels speed size test fuzz test-slow soak mutants faults nightly lint types contracts check docs

help:  ## list the targets
	@echo "usage: make TARGET [NAME=VALUE ...]"
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## (.*)/\1\t\2/' | awk -F'\t' '{printf "  %-20s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml constraints.txt constraints-numpy2.txt
	@test -x $(VENV_PYTHON) || $(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; give another one: make setup PYTHON=python3.11")'
	@test -x $(VENV_PYTHON) || $(PYTHON) -m venv $(VENV)
	@echo "setting up .venv (once, a few minutes; 2.9 GB on disk with the CPU build of torch, several GB more with CUDA)"
	@if [ "$(ACCEL)" != cpu ] && [ "$(ACCEL)" != gpu ]; then echo "error: ACCEL=$(ACCEL); choose from: cpu, gpu" >&2; exit 2; fi
	@pins=constraints.txt; extra=scispacy; \
	if [ "$(SCISPACY)" = 0 ] || $(VENV_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then pins=constraints-numpy2.txt; extra=; echo "without scispaCy, with numpy 2"; fi; \
	env -u PYTHONSAFEPATH $(VENV_PYTHON) -m pip install --quiet --no-compile --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c $$pins \
	  torch==$$(sed -n 's/^torch==//p' $$pins) $$($(VENV_PYTHON) bin/requirements.py $(ACCEL) $$extra onnx dev $(EXTRAS))
	@$(VENV_PYTHON) -m compileall -q -j 0 $(VENV)/lib > /dev/null; true  # on all cores; some packages carry templates that are no Python
	@rm -f $(VENV)/.installed-*; touch $@ $(VENV)/.installed-$(ACCEL)

setup: $(INSTALLED)  ## build .venv from the pinned constraints (ACCEL=cpu|gpu, EXTRAS=ray, SCISPACY=0, TORCH_INDEX=URL, PYTHON=python3.11)

pretrain-%: $(INSTALLED)  ## pretrain-<paper>: graph, embeddings, linked corpus, pre-training (PROFILE=small|paper; PLAN=1 only lists the stages)
	@$(KEPL) pretrain $* @make

kg-%: $(INSTALLED)  ## kg-<graph>_<model>: graph and its embedding, as experiments/kg/<graph>_<model>.yaml has them
	@$(KEPL) pretrain kg/$* @make

finetune: $(INSTALLED)  ## fine-tune and score an encoder or a linker on a task (TASK= MODEL= SEEDS= MIRROR=)
rerank: $(INSTALLED)  ## a cross-encoder over a linker's candidates, trained and scored (TASK= MODEL= SPLIT= SEED= MIRROR=)
predict: $(INSTALLED)  ## a fine-tuned model on new text (MODEL=TASK/encoder TEXT= INPUT= OUTPUT=)
link: $(INSTALLED)  ## entities of a graph in text (GRAPH= CHAIN= TEXT= INPUT= OUTPUT=)
embed: $(INSTALLED)  ## vectors of names or short texts (MODEL= INPUT= OUTPUT=)
evaluate: $(INSTALLED)  ## score an entity linker beside both baselines (TASK= MODEL= SPLIT= MIRROR=)
peers: $(INSTALLED)  ## chains beside other people's linkers on an end-to-end task (TASK=NCBI-E2E CHAINS= PEERS= SPLIT= MIRROR=)
compare: $(INSTALLED)  ## every system scored on a task, with paired tests (TASK=<task>|synonyms BASE=)
curve: $(INSTALLED)  ## score against the share of the training documents (TASK= MODELS="plain marks smedbert" SHARES= SEEDS= MIRROR=)
knowledge: $(INSTALLED)  ## a paper's primary comparison with its controls, from nothing (PAPER=smedbert PLAN=1 MIRROR=)
table: $(INSTALLED)  ## a paper's table, reported beside measured (PAPER= TABLE=; RUN=1 SEEDS= first makes the missing results)
figures: $(INSTALLED)  ## a paper's figures (PAPER= OUT=)
cases: $(INSTALLED)  ## what a scored linker gets wrong, most frequent first (TASK= OF= TOP=)
synonyms: $(INSTALLED)  ## which of 20 names means the same, by any encoder or word vectors (MODEL= SAMPLES=)
probe: $(INSTALLED)  ## fill-in queries of a graph's triples, by any masked language model (GRAPH= MODEL=)
overlap: $(INSTALLED)  ## annotated mentions of NER and relation sets that a graph contains (TASK= GRAPH=)
counts: $(INSTALLED)  ## sizes of every available split beside the papers' (TASK= MIRROR=)
data: $(INSTALLED)  ## fetch and verify a task's files (TASK= MIRROR=)
sweep: $(INSTALLED)  ## a grid or a search of runs under one parent in MLflow, resumable (CONFIG=<file> AT_ONCE=)
serve: $(INSTALLED)  ## a page and an interface over HTTP (GRAPH= CHAIN= PORT=)
demo: $(INSTALLED)  ## linked text on a page in one command (WHAT=hpo|medic|cmekg CHAIN= PORT=)
dashboard: $(INSTALLED)  ## compare runs in MLflow on http://127.0.0.1:5000 (PORT=)
tasks: $(INSTALLED)  ## list the tasks
publish: $(INSTALLED)  ## records of finished runs, in docs/results (RUNS= GROUP= AGAINST=)
results: $(INSTALLED)  ## write the results tables and figures of README and docs from docs/results
convert: $(INSTALLED)  ## annotated texts from one format into another (INPUT= OUTPUT= TO=brat|csv|conll|bioc|…)
push: $(INSTALLED)  ## upload a trained model to the Hugging Face hub (FOLDER= REPOSITORY=owner/name PUBLIC=1)
onnx: $(INSTALLED)  ## an encoder or a tagger as an ONNX file (MODEL= OUT=)
register: $(INSTALLED)  ## a tagger or a chain in MLflow's registry (MODEL= NAME= GRAPH=)
sync: $(INSTALLED)  ## deliver to MLflow what runs recorded while it did not answer

$(VERBS):
	@$(KEPL) $@ @make

results-check: $(INSTALLED)  ## every results table and every number in the documents is in docs/results
	@$(KEPL) results --check true

speed: $(INSTALLED)  ## speed ratios against plain references (NAME=linking|miner|retrieval|...; all without)
	@for n in $(or $(NAME),$$(ls benchmarks/perf/speed | sed -n 's/^\([a-z][a-z_]*\)\.py$$/\1/p')); do $(KEPL) measure speed $$n --json || exit 1; done

scale: $(INSTALLED)  ## how time, memory and open files grow with the data (SIZES=10k,100k ONLY=documents|names|triples|concepts)
	@$(KEPL) measure scale @make

# A bare CUDA machine has no network to build .venv with: PYTHON= is taken as it is, and .venv where there is one.
GPU_PYTHON := $(if $(filter command% environment%,$(origin PYTHON)),$(PYTHON),$(or $(wildcard $(VENV_PYTHON)),$(PYTHON)))

gpu-check:  ## tests marked gpu, speed, and short pre-training on a CUDA device, in resumable parts (ONLY=tests,layers,pretrain-kebiolm FRESH=1 JOBS=8 PYTHON=python3)
	@$(GPU_PYTHON) -P -m core.call measure gpu $(if $(ONLY),--only '$(ONLY)') $(if $(FRESH),--fresh) $(if $(JOBS),--jobs $(JOBS))

gpu-wheels: $(INSTALLED)  ## what gpu-check needs and another machine lacks, name==version, to carry (INSTALLED_THERE=<pip list --format freeze> PYTHON_THERE=3.12)
	@$(VENV_PYTHON) -P bin/wheels.py $(if $(INSTALLED_THERE),--installed '$(INSTALLED_THERE)') $(if $(PYTHON_THERE),--python '$(PYTHON_THERE)')

docs: $(INSTALLED)  ## the pages of docs/ as HTML, in docs/_build
	@$(VENV_PYTHON) -P -m sphinx -q -W --keep-going -b html docs docs/_build && echo docs/_build/index.html

test: $(INSTALLED)  ## tests that need no GPU and no long training (TESTS_AT_ONCE=3: on two cores one may wait)
	@env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(VENV_PYTHON) -P -m pytest -n $(or $(TESTS_AT_ONCE),3) --dist worksteal $(ARGS)

test-slow: $(INSTALLED)  ## the slow tests, for a nightly run
	@$(VENV_PYTHON) -P -m pytest -m slow $(ARGS)

fuzz: $(INSTALLED)  ## broken files for every reader, seeded (SECONDS=60 SEED=0 ARGS="--only jsonl"); exit 1 after a crash or a row neither used nor counted
	@$(VENV_PYTHON) -P -m tests.fuzz --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0) $(ARGS)

soak: $(INSTALLED)  ## a server under 16 clients, half of them slow or broken (MINUTES=30)
	@$(VENV_PYTHON) -P -m tests.soak --minutes $(or $(MINUTES),30)

mutants: $(INSTALLED)  ## put one listed fault after the other into a copy of the code: a named test must fail (ONLY=word JOBS=2); or draw faults by chance (GENERATE=300 SEED=1 ROOM=inference)
	@$(VENV_PYTHON) -P -m tests.mutants $(if $(ONLY),--only '$(ONLY)') $(if $(JOBS),--jobs '$(JOBS)') $(if $(GENERATE),--generate '$(GENERATE)' --seed '$(or $(SEED),0)') $(if $(ROOM),--room '$(ROOM)') $(if $(REPORT),--report '$(REPORT)')

faults: $(INSTALLED)  ## kills, full disks and an absent server in every stage of every pipeline and every command (KILLS=20 PAPERS="kebiolm verbs" SEED=0 JOBS=2)
	@$(VENV_PYTHON) -P -m tests.faults --kills $(or $(KILLS),20) --seed $(or $(SEED),0) $(if $(JOBS),--jobs '$(JOBS)') $(if $(PAPERS),--papers $(PAPERS))

nightly: $(INSTALLED) test-slow mutants faults  ## what takes long: slow tests, faults in the code, faults of the machine, broken files, a server under load, sizes
	@$(MAKE) --no-print-directory fuzz SECONDS=1800
	@$(MAKE) --no-print-directory soak
	@OMP_NUM_THREADS=1 $(VENV_PYTHON) -P -m tests.soak.chains
	@$(MAKE) --no-print-directory scale

lint: $(INSTALLED)  ## ruff: rules and formatting
	@$(VENV_PYTHON) -P -m ruff check .
	@$(VENV_PYTHON) -P -m ruff format --check --quiet .

types: $(INSTALLED)  ## mypy
	@$(VENV_PYTHON) -P -m mypy

contracts: $(INSTALLED)  ## who may import whom
	@$(VENV)/bin/lint-imports

size: $(INSTALLED)  ## code tokens, tokens a line, long functions, by room
	@$(VENV_PYTHON) -P -m bin.size

check: lint types contracts results-check test size  ## lint, types, import contracts, published numbers, tests, size
