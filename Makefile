# Every target sets up .venv by itself, from requirements/lock.txt. Variables: PYTHON=... WORKERS=...
.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint format lock clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## train TEB and a uniform walk on a small maze, then show both
	$(BIN)/teb train maze2d/square-a uniform --steps 60000 --out runs/demo-uniform
	$(BIN)/teb train maze2d/square-a teb-p --preset cpu --bonus potential --steps 60000 --out runs/demo
	$(BIN)/teb show runs/demo runs/demo-uniform

# One thread per worker: faster than workers that fight for cores, and sums come out the same on every machine.
test: lint ## all that CI runs: lint, then the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

test-slow: $(STAMP) ## the tests marked slow
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m slow

lint: $(STAMP) ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolve the dependencies afresh and rewrite requirements/lock.txt
	@python=$$(sh requirements/python.sh "$(PYTHON)") && "$$python" requirements/lock.py

clean: ## remove .venv, caches and build products; runs/ stays
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis
	find src tests requirements -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the folder it was made for: a copied or moved checkout installs again.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif
$(STAMP): requirements/lock.txt pyproject.toml
	@sh requirements/install.sh $(VENV) "$(PYTHON)"
