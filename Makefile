PYTHON ?= python3
PY := .venv/bin/python

# Whatever a tool keeps stays in the work folder, and whatever the machine has set for another Python stays out of it.
CACHE := $(or $(TINYLM_WORK:~/%=$(HOME)/%),$(CURDIR)/work)/cache
export CUDA_CACHE_PATH := $(CACHE)/cuda
export HF_HOME := $(CACHE)/huggingface
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis
export IPYTHONDIR := $(CACHE)/ipython
export JUPYTER_CONFIG_DIR := $(CACHE)/jupyter/config
export JUPYTER_DATA_DIR := $(CACHE)/jupyter/data
export JUPYTER_RUNTIME_DIR := $(CACHE)/jupyter/runtime
export MPLCONFIGDIR := $(CACHE)/matplotlib
export MYPY_CACHE_DIR := $(CACHE)/mypy
export NPM_CONFIG_CACHE := $(CACHE)/npm
export RUFF_CACHE_DIR := $(CACHE)/ruff
export TORCHINDUCTOR_CACHE_DIR := $(CACHE)/torchinductor
export TRITON_CACHE_DIR := $(CACHE)/triton
export XDG_CACHE_HOME := $(CACHE)
unexport PYTHONHOME PYTHONPATH
# A waiting thread soon gives its core away: with other work on the machine a training step is several times faster.
export GOMP_SPINCOUNT := 1000

.PHONY: help lab doctor grade train test test-all bench weights notebooks site slides portable colab seeds clean set-up-lab set-up-test
.NOTPARALLEL:

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

lab: set-up-lab ## open the course in JupyterLab on your own copies: make lab ARGS="05 --work ~/tinylm"
	@$(PY) -m tinylm_lib lab $(ARGS)

doctor: set-up-lab ## look for the usual problems, and say what to do
	@$(PY) -m tinylm_lib doctor

grade: set-up-lab ## grade submitted notebooks: make grade ARGS="FOLDER"; more with ARGS="--help"
	@$(PY) -m tinylm_lib grade $(ARGS)

train: set-up-lab ## train a model on StoryWorld for about a minute, options in ARGS: make train ARGS="--help"
	@$(PY) -m tinylm_lib train $(ARGS)

test: set-up-test ## check what is quick and has changed: style, tests, notebooks; or some parts: make test ARGS="style"
	@$(PY) tools/run_tests.py $(ARGS)

test-all: set-up-test ## the same and what takes long: browsers, compilers, many processes, the solutions
	@$(PY) tools/run_tests.py --all $(ARGS)

bench: set-up-test ## compare with nanoGPT, minbpe and Hugging Face: make bench ARGS="--help"
	@PYTHONPATH=tools:tests $(PY) -m benchmarks $(ARGS)

weights: set-up-test ## train the model that ships with the library again, about ten minutes
	@$(PY) tools/weights.py

notebooks: set-up-test ## build and execute the notebooks from notebooks/source
	@$(PY) -m tinylm_classroom.course.build

slides: set-up-lab ## write the lessons as slides into work/slides: make slides ARGS="05 --instructor --pdf --to FOLDER"
	@$(PY) -m tinylm_lib slides $(ARGS)

site: set-up-lab ## export the built lessons as an offline site into work/site: make site ARGS="05 --to FOLDER"
	@$(PY) -m tinylm_lib site $(ARGS)

portable: set-up-test ## run notebooks and tests as other machines would, and list what differs: make portable ARGS="--help"
	@$(PY) tools/portable $(ARGS)

colab: set-up-test ## run the lessons as on Colab, and five in its frames: make colab ARGS="--help"
	@$(PY) tools/colab $(ARGS)

seeds: set-up-test ## execute lessons with other seeds, and list what falls: make seeds ARGS="05 --shifts 1 2 3"
	@$(PY) tools/seeds.py $(ARGS)

clean: ## delete .venv and the caches in this folder, never your own notebooks in work/
	rm -rf .venv work/cache .pytest_cache .mypy_cache .ruff_cache build dist tinylm_lib.egg-info

set-up-lab:
	@$(FIND_PYTHON) && "$(PYTHON)" tools/setup.py lab

set-up-test:
	@$(FIND_PYTHON) && "$(PYTHON)" tools/setup.py lab,course,test

FIND_PYTHON = command -v "$(PYTHON)" > /dev/null || \
	{ echo "Set-up stopped: there is no $(PYTHON): install Python 3.11, or name one, for example make lab PYTHON=python3.12." >&2; exit 1; }
