# The one front door. Each target is short; what is longer is a Python file in tools/.

PYTHON ?= python3
BIN := .venv/bin
TIERS_OF_TESTS := unit golden property oracle integration security fault spark

.DEFAULT_GOAL := help
.PHONY: help setup check docs coverage format test test-all test-unit test-oracle test-integration test-security test-spark test-fault test-containers \
        explore simulate mutate demo bench compare dist lock jars pins up down clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: ## Create .venv from the lock file, compile, fetch the jars (nothing when nothing changed)
	@command -v $(PYTHON) >/dev/null || { echo "setup: no $(PYTHON): install Python 3.11 or later (Debian, Ubuntu: apt install python3 python3-venv)" >&2; exit 1; }
	@$(PYTHON) tools/setup.py

check: setup ## Formatting, lint, types, layers, what is not used, the docs' links
	@$(BIN)/python tools/check.py

docs: setup ## Build the docs site into build/site; fails on a link that leads nowhere
	@$(BIN)/python -m tools.docs && echo "docs: build/site/index.html"

format: setup ## Format, and repair what the linter can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

test: setup ## Every tier; fails when one of them ran nothing
	@$(BIN)/python -m tools.run_tests $(TIERS_OF_TESTS)

test-all: setup ## The same on every major of PostgreSQL, and five times as many random filters
	@PGSLUICE_ALL_MAJORS=1 PGSLUICE_ORACLE_PAIRS=100000 $(BIN)/python -m tools.run_tests $(TIERS_OF_TESTS)

test-unit: setup ## Without servers: unit, golden and property tests
	@$(BIN)/python -m tools.run_tests unit golden property

test-oracle: setup ## Where a real PostgreSQL is the judge
	@$(BIN)/python -m tools.run_tests oracle

test-integration: setup ## PostgreSQL, Kafka and registry together
	@$(BIN)/python -m tools.run_tests integration

test-security: setup ## Attacks, each with the least that an attacker needs
	@$(BIN)/python -m tools.run_tests security

test-spark: setup ## The Spark job
	@$(BIN)/python -m tools.run_tests spark

test-fault: setup ## Kill, restart, compare; ROUNDS=200 of a random sequence of faults
	@$(if $(ROUNDS),PGSLUICE_FAULT_ROUNDS=$(ROUNDS)) $(BIN)/python -m tools.run_tests fault \
	  $(if $(ROUNDS),-- -k sequence -o faulthandler_timeout=0)

test-containers: setup ## Images and docker-compose.yml, on the engine that answers or, as root, on one of its own; not part of test
	@$(BIN)/python -m tools.run_tests containers -- --numprocesses=0

coverage: setup ## Lines and branches that the tests without servers run, into htmlcov/; TIERS="unit oracle" chooses
	@$(BIN)/coverage run -m pytest -q $(addprefix tests/,$(or $(TIERS),unit golden property))
	@$(BIN)/coverage html --quiet && $(BIN)/coverage report

explore: setup ## Search with new seeds for MINUTES=10
	@$(BIN)/python tools/explore.py $(or $(MINUTES),10)

simulate: setup ## Run SCHEDULES=100000 of the simulated world, from SEED
	@$(BIN)/python -m tools.simulate --schedules $(or $(SCHEDULES),100000) $(if $(SEED),--seed $(SEED))

mutate: setup ## Make NUMBER=20 lines of FILES wrong, one at a time; ALSO="tests/..." names tests with servers
	@$(BIN)/python -m tools.mutate --number $(or $(NUMBER),20) $(if $(SEED),--seed $(SEED)) $(if $(ALSO),--also $(ALSO)) -- \
	  $(or $(FILES),gateway/runtime gateway/routing gateway/definitions gateway/copy gateway/transactions spark_consumer/apply)

demo: setup ## The whole path on real parts; KEEP=1 leaves them running
	@$(BIN)/pgsluice demo $(if $(KEEP),--keep)

bench: setup ## Measure rows per second beside pg_recvlogical
	@$(BIN)/python -m bench

compare: setup ## Debezium and pgsluice beside each other: rate, latency, kill -9, filters, DDL, a restored server
	@$(BIN)/python -m bench.compare

dist: setup ## The wheel, the jars and the program for spark-submit, into dist/; S3=1 adds the jars of s3a://, ICEBERG=1 that of Iceberg, JDBC=1 that of its catalog in PostgreSQL
	@$(BIN)/python tools/dist.py $(if $(S3),--s3) $(if $(ICEBERG),--iceberg) $(if $(JDBC),--jdbc)

lock: setup ## Write the lock files anew
	@$(BIN)/python tools/lock.py

jars: setup ## Write the checksums of all jars anew, after a change of ivy.xml
	@$(BIN)/python -m tools.lock_jars

pins: ## Look up the commits of actions and the digests of images, and write them
	@$(PYTHON) tools/pins.py

up: .env ## Bring the whole system up in containers
	docker compose up --build --detach --wait

.env:
	@(umask 077; printf 'POSTGRES_PASSWORD=%s\n' "$$($(PYTHON) -c 'import secrets; print(secrets.token_hex(16))')" > .env)

down: ## Take the containers down; volumes stay
	docker compose down

clean: ## Remove what make and the tools made here; the download cache stays
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis htmlcov .coverage
