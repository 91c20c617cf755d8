# `make serve` and `make test` need Python (3.11 or newer) and make, nothing else.
PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8780
BIN := .venv/bin
INSTALLED := .venv/installed
EXTRAS ?= service

# The constraints hold for what builds the package too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: serve test check format bench fuzz live vectors image clean
.DEFAULT_GOAL := test

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

serve: $(INSTALLED)
	$(BIN)/mmhash serve --host $(HOST) --port $(PORT)

test: $(INSTALLED)
	$(BIN)/python -m pytest

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy mmhash typings/mmhash_service bench
	$(BIN)/codespell

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/python -m bench

# So many seconds a target, on all cores; what it finds lies in build/fuzz/.
FUZZ_SECONDS ?= 120

fuzz: $(INSTALLED)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

# Runs unmodified vLLM and SGLang servers on the CPU; builds them in ~/.cache/mmhash-live first.
live: $(INSTALLED)
	@begin=$$(date +%s); \
	$(BIN)/python -m pytest -m live tests/live; code=$$?; \
	echo "make live: $$(( $$(date +%s) - begin )) s"; exit $$code

vectors: $(INSTALLED)
	$(BIN)/python tests/vectors/make.py

# As root on Debian, with its packages buildah, debootstrap and iproute2.
image: $(INSTALLED)
	deploy/image.sh $(BIN)/python $(EXTRAS)

clean:
	rm -rf .venv build dist *.egg-info
