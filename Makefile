# Every target sets up what it needs: a virtual environment in .venv, from hashed locks, with pip or (if there) uv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

.PHONY: help serve test check format conformance bench-protocol bench-retrieval bench-quality bench-sources bench-tokens bench-search bench-import bench-messages docs lock clean

help:
	@echo "make serve           serve the demo library on http://127.0.0.1:8765 (ARGS='--port 9000' passes options on)"
	@echo "make test            run the whole test suite (ARGS='tests/auth -k jwt' narrows it)"
	@echo "make check           format, lint, types, import contract"
	@echo "make format          format the code"
	@echo "make conformance     run the official MCP conformance suite, both eras"
	@echo "make bench-protocol  measure the protocol layer against the official SDK"
	@echo "make bench-retrieval measure answers to judged questions (DATA=<folder>; see docs/quality.md)"
	@echo "make bench-quality   measure one ranking over all sources on a judged library (see docs/quality.md)"
	@echo "make bench-sources   measure searches against plain SQL, first searches and many users"
	@echo "make bench-search    measure a search over all sources: the server against plain SQL, and many clients"
	@echo "make bench-import    measure imports of notes and chats against plain SQL, and their memory"
	@echo "make bench-messages  measure searches in a million messages against plain SQL (seven minutes; builds them once)"
	@echo "make bench-tokens    count the tokens of a research session over the demo library (see docs/quality.md)"
	@echo "make docs            write the generated pages of docs/"
	@echo "make lock            pin the newest allowed versions (needs uv)"

# Python 3.11 or newer is needed; the check says so before pip says something stranger.
$(STAMP): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Florilegium needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.txt && \
	  uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt && \
	  PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    --no-build-isolation -e . ; \
	fi
	@touch $@

serve: $(STAMP)
	@$(BIN)/florilegium serve --demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.clients.node_tools pyright
	$(BIN)/lint-imports --no-logo

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

conformance: $(STAMP)
	$(BIN)/python -m tests.conformance.run $(ARGS)

bench-protocol: $(STAMP)
	$(BIN)/python -m bench.protocol $(ARGS)

bench-retrieval: $(STAMP)
	$(BIN)/python -m bench.retrieval $(DATA) $(ARGS)

bench-quality: $(STAMP)
	$(BIN)/python -m bench.cross_source $(ARGS)

bench-tokens: $(STAMP)
	$(BIN)/python -m bench.tokens $(ARGS)

bench-sources: $(STAMP)
	$(BIN)/python -m bench.sources $(ARGS)

bench-search: $(STAMP)
	$(BIN)/python -m bench.search $(ARGS)

bench-import: $(STAMP)
	$(BIN)/python -m bench.imports $(ARGS)

bench-messages: $(STAMP)
	$(BIN)/python -m bench.messages $(ARGS)

docs: $(STAMP)
	$(BIN)/florilegium config docs > docs/settings.md
	$(BIN)/python -m server.reference > docs/tools.md
	$(BIN)/python -m tests.compatibility.page > docs/compatibility.md

lock:
	uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --upgrade \
	  --custom-compile-command "make lock" pyproject.toml --extra fast --extra pdf -o requirements.txt
	uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --upgrade \
	  --custom-compile-command "make lock" pyproject.toml --extra fast --extra pdf --group dev -o requirements-dev.txt

clean:
	rm -rf $(VENV) $(VENV)-* build dist tests/clients/node/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
