PYTHON ?= python3
PY := .venv/bin/python
NBVAL := TINYLM_WORKSHOP=off $(PY) -m pytest -p no:cacheprovider --nbval --nbval-current-env --nbval-cell-timeout=120 \
	--nbval-sanitize-with notebooks/sanitize.cfg
# Two files at a time, each whole in one process: tests and lessons keep about one core busy.
TWO := --numprocesses=2 --dist=loadfile
# Set-ups under which the printed numbers must stay the same: instruction sets of PyTorch and of oneDNN, and one thread.
MACHINES := ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=SSE41 ONEDNN_MAX_CPU_ISA=AVX2 \
	OMP_NUM_THREADS=1

# Whatever a tool keeps stays in the checkout, and whatever the machine has set for another Python stays out of it.
CACHE := $(CURDIR)/work/cache
export CUDA_CACHE_PATH := $(CACHE)/cuda
export HF_HOME := $(CACHE)/huggingface
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis
export IPYTHONDIR := $(CACHE)/ipython
export JUPYTER_CONFIG_DIR := $(CACHE)/jupyter/config
export JUPYTER_DATA_DIR := $(CACHE)/jupyter/data
export JUPYTER_RUNTIME_DIR := $(CACHE)/jupyter/runtime
export MPLCONFIGDIR := $(CACHE)/matplotlib
export NPM_CONFIG_CACHE := $(CACHE)/npm
export RUFF_CACHE_DIR := $(CACHE)/ruff
export TORCHINDUCTOR_CACHE_DIR := $(CACHE)/torchinductor
export TRITON_CACHE_DIR := $(CACHE)/triton
export XDG_CACHE_HOME := $(CACHE)
unexport PYTHONHOME PYTHONPATH
# A waiting thread soon gives its core away: with other work on the machine a training step is several times faster.
export GOMP_SPINCOUNT := 1000

.PHONY: help lab train test test-all test-long bench weights notebooks site portable clean set-up-lab set-up-test
.PHONY: check-style check-code check-notebooks check-exercises check-long check-solutions
.NOTPARALLEL:

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

lab: set-up-lab ## open the course in JupyterLab, on your own copies of the notebooks in work/
	@$(PY) -m tinylm_lib lab

train: set-up-lab ## train a model on StoryWorld for about a minute, options in ARGS: make train ARGS="--help"
	@$(PY) -m tinylm_lib train $(ARGS)

test: check-style check-code check-notebooks check-exercises ## check everything that is quick: style, tests, notebooks, solutions

test-all: test test-long ## the same and what takes long: browsers, compilers, every solution in full

check-style: set-up-test
	$(PY) -m ruff check
	$(PY) -m ruff format --check

check-code: set-up-test
	$(PY) -m pytest $(TWO) -m "not slow and not browser" tests

check-notebooks: set-up-test
	$(NBVAL) $(TWO) notebooks/*.ipynb

check-exercises: set-up-test
	$(PY) -m tinylm_lib.classroom.lessons check-solutions --quick

test-long: check-long check-solutions

check-long: set-up-test
	$(PY) -m pytest -m "slow or browser" tests

check-solutions: set-up-test
	$(PY) -m tinylm_lib.classroom.lessons check-solutions

bench: set-up-test ## measure beside nanoGPT, minbpe and Hugging Face: make bench ARGS="--help"
	@PYTHONPATH=tests $(PY) -m benchmarks $(ARGS)

weights: set-up-test ## train the model that ships with the library anew, about ten minutes
	@$(PY) tools/weights.py

notebooks: set-up-test ## build and execute the notebooks from notebooks/source
	@$(PY) -m tinylm_lib.classroom.lessons build

site: set-up-lab ## export the built lessons as an offline site into work/site: make site ARGS="05 --to FOLDER"
	@$(PY) -m tinylm_lib.classroom.pages $(ARGS)

portable: set-up-test ## run the notebooks as other processors would, and list what prints differently
	@mkdir -p work/cache/portable; status=0; \
	for machine in $(MACHINES); do \
		log="work/cache/portable/$$machine.txt"; \
		if env "$$machine" $(NBVAL) $(TWO) notebooks/*.ipynb > "$$log" 2>&1; then result=same; else result=DIFFERS; status=1; fi; \
		printf '%-28s %-8s %s\n' "$$machine" "$$result" "$$(tail -n 1 "$$log" | tr -d =)"; \
		grep '^FAILED' "$$log"; \
	done; exit $$status

clean: ## delete .venv and every cache, never your own notebooks in work/
	rm -rf .venv work/cache .pytest_cache

set-up-lab:
	@$(FIND_PYTHON) && "$(PYTHON)" tools/setup.py lab

set-up-test:
	@$(FIND_PYTHON) && "$(PYTHON)" tools/setup.py lab,test

FIND_PYTHON = command -v "$(PYTHON)" > /dev/null || \
	{ echo "Set-up stopped: there is no $(PYTHON): install Python 3.11, or name one, for example make lab PYTHON=python3.12." >&2; exit 1; }
