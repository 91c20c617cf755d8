# `make serve` and `make test` need only make and Python (3.11 or newer). They use uv if it is installed.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8780
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null)
EXTRAS ?= service

# The constraints apply to build requirements too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_CONSTRAINT := $(CURDIR)/constraints.txt
export UV_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt

ifdef UV
CREATE_VENV = $(UV) venv --quiet --allow-existing --seed --python $(PYTHON) .venv
INSTALL = $(UV) pip install --quiet --python $(BIN)/python
# Install torch with pip: its configuration may name a CPU build, which uv would miss.
INSTALL_TORCH = $(BIN)/python -m pip install --quiet --no-compile torch
else
# Python 3.11 brings a pip that takes three times as long to find the packages.
CREATE_VENV = $(PYTHON) -m venv --upgrade-deps .venv
INSTALL = $(BIN)/python -m pip install --quiet --no-compile
endif

# Let Python write bytecode: hundreds of processes share what the first import has compiled. pip need
# not compile, because it would compile every module of every package.
unexport PYTHONDONTWRITEBYTECODE

# There is one stamp per set of packages. The larger set includes the smaller one.
SERVICE := .venv/installed-service
DEV := .venv/installed-dev

.PHONY: setup serve test test-all live demo docs check format coverage bench fuzz oracle vectors image release clean
.DEFAULT_GOAL := test

$(SERVICE): pyproject.toml constraints.txt
	$(CREATE_VENV)
	$(INSTALL) --editable '.[service]'
	touch $@

$(DEV): pyproject.toml constraints.txt
	$(CREATE_VENV)
	$(INSTALL_TORCH)
	$(INSTALL) --editable '.[dev]'
	touch $(SERVICE) $@

setup: $(DEV)

serve: $(SERVICE)
	$(BIN)/mmhash serve --host $(HOST) --port $(PORT)

# The tests of a file run in one process, because they share its servers. ARGS="-k name" selects tests.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

# All tests in these folders are slow. Collecting them would import openai and playwright in every process.
SLOW_FOLDERS := --ignore tests/browser --ignore tests/live

test: $(DEV)
	HYPOTHESIS_PROFILE=fast $(PYTEST) -m "not slow and not live" $(SLOW_FOLDERS) $(ARGS)

# Run the engines last, because each takes a core for many seconds to start.
test-all: $(DEV)
	$(PYTEST) -m "not live" $(ARGS)
	$(MAKE) live

coverage: $(DEV)
	HYPOTHESIS_PROFILE=fast $(PYTEST) -m "not slow and not live" --cov --cov-report term:skip-covered \
		$(SLOW_FOLDERS) $(ARGS)

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	git ls-files '*.cu' '*.cuh' '*.cpp' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files '*.cu' '*.cuh' '*.cpp' | xargs $(BIN)/clang-format -i

bench: $(DEV)
	$(BIN)/python -m bench

# The seconds for each target, on all cores. Failing inputs are written to build/fuzz/.
FUZZ_SECONDS ?= 120

fuzz: $(DEV)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

# Runs unmodified vLLM and SGLang servers on the CPU. First builds them in ~/.cache/mmhash-live.
# Two test processes have an engine each: one starts, on one core, while the other is tested.
live: $(DEV)
	@begin=$$(date +%s); \
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope -m "live and not slow" tests/live $(ARGS); code=$$?; \
	echo "make live: $$(( $$(date +%s) - begin )) s"; exit $$code

# Compares prompt plans with transformers' processors, in an environment in ~/.cache/mmhash-oracle, and
# with the prompts of chats in a vLLM of `make live`.
oracle: $(DEV)
	$(BIN)/python -m tests.oracle $(ARGS)
	$(BIN)/python -m tests.oracle.processed
	$(BIN)/python -m tests.oracle.templates
	$(BIN)/python -m pytest -q tests/unit/mmhash/prompts/test_vllm_prompts.py

# Runs two vLLM workers on the CPU behind `mmhash gateway` until Ctrl-C. DEMO_EXIT=1 ends after the table.
demo: $(DEV)
	$(BIN)/python -m bench.fleet.demo

# Builds the documentation site in build/site. It works without a network.
docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

vectors: $(DEV)
	$(BIN)/python tests/vectors/make.py

# Needs root on Debian, and the packages buildah, debootstrap and iproute2.
image: $(DEV)
	deploy/image.sh $(BIN)/python $(EXTRAS)

# Build dist/, check it, and run the wheel in an empty environment.
release: $(DEV)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.packaging.try_wheel dist/*.whl

clean:
	rm -rf .venv build dist *.egg-info
