# Every target does its own set-up in .venv; a second run finds it done. Another Python: make PYTHON=python3.13 test

PYTHON ?= python3
FUZZ_SECONDS ?= 60

python := .venv/bin/python
code := src tests tools benchmarks
install := $(python) -m uv pip install --quiet --compile-bytecode --python $(python)
dev := .venv/.dev
fuzzing := .venv/.fuzz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' Makefile

demo: $(dev) ## serve a Kafka client, write, truncate and recover a log, and count it all on Spark
	@$(python) -m tools.demo

test: $(dev) ## run the tests on two cores (with real clients: JDK, Maven, Node, kcat)
	@tools/setup_debian.sh cc
	@$(python) -m tools.clients
	@$(python) -m pytest --quiet --numprocesses 2 --dist worksteal
	@PENSTOCK_TEST_SPARK_CLUSTER=1 $(python) -m pytest --quiet tests/system/test_spark_cluster.py -k archive

test-kafka: $(dev) ## run the SDK's tests against an Apache Kafka (JDK, Maven)
	@tools/setup_debian.sh java mvn
	@PENSTOCK_TEST_KAFKA=1 $(python) -m pytest --quiet --override-ini timeout=900 tests/kafka

test-spark: $(dev) ## run all tests that start Spark, of which `make test` has a few; with a million messages (8 minutes; JDK)
	@tools/setup_debian.sh java
	@PENSTOCK_TEST_SPARK=1 SOAK_MESSAGES=1000000 $(python) -m pytest --quiet tests/spark tests/cli tests/docs tests/tools tests/system/test_spark_kills.py

test-spark-cluster: $(dev) ## run source, sink and archive on a Spark cluster and kill its executors (2 minutes; JDK)
	@tools/setup_debian.sh java
	@PENSTOCK_TEST_SPARK_CLUSTER=1 $(python) -m pytest --quiet tests/system/test_spark_cluster.py tests/docs/test_spark_cluster_guide.py

test-spark-connector: $(dev) ## have Spark's own Kafka connector read and write (2 minutes; JDK, Maven)
	@tools/setup_debian.sh java mvn
	@PENSTOCK_TEST_SPARK_CONNECTOR=1 $(python) -m pytest --quiet tests/clients/test_spark_connector.py

check: $(dev) ## check format, lint, types, import contracts, and that tests mirror the source
	@$(python) -m ruff format --quiet --check $(code)
	@$(python) -m ruff check --quiet $(code)
	@$(python) -m mypy --no-error-summary
	@.venv/bin/lint-imports --no-logo
	@$(python) -m tools.check_mirror

soak: $(dev) ## kill brokers, take their power, compact millions of updates, all scenarios of groups (SOAK_SEED=1)
	@tools/setup_debian.sh losetup mkfs.ext4 mount
	@$(python) -m tools.clients
	@SOAK_KILLS=30 SOAK_POWER_LOSSES=15 SOAK_RUNS=20 SOAK_GROUPS=1 SOAK_UPDATES=5000000 $(python) -m pytest -s \
		tests/system/test_crashes.py tests/system/test_power_loss.py tests/system/test_compaction.py \
		tests/clients/test_groups.py

bench: $(dev) ## measure the broker beside a C program, codec, log and SDK beside their peers (10 minutes; C compiler)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks

bench-peers: $(dev) ## measure the broker beside Apache Kafka, Redis, NATS and RabbitMQ (QUICK=1: 4 minutes; C compiler)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks.peers $(if $(QUICK),--quick)

bench-growth: $(dev) ## measure it with more partitions, connections and data, and in a surge (QUICK=1: 3 minutes; C compiler)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks.growth $(if $(QUICK),--quick)

bench-spark: $(dev) ## measure source, archive and micro-batches beside Spark's own (15 minutes; QUICK=1: 4; JDK, Maven)
	@tools/setup_debian.sh java mvn
	@$(python) -m benchmarks.spark $(if $(QUICK),--quick)

fuzz: $(fuzzing) ## fuzz the decoders for FUZZ_SECONDS=60
	@$(python) -m tools.fuzz --seconds $(FUZZ_SECONDS)

fixtures: $(dev) ## capture batches from real clients and show ours to a real Apache Kafka (JDK, Maven, Node)
	@tools/setup_debian.sh java mvn node npm
	@$(python) -m tools.fixtures

fmt: $(dev) ## format the code and repair what lint can repair
	@$(python) -m ruff check --quiet --fix --exit-zero $(code)
	@$(python) -m ruff format --quiet $(code)

clean: ## delete the environment and every cache
	@rm -rf .venv .cache .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so that an interrupted set-up is done again.
.venv/.uv:
	@PYTHON='$(PYTHON)' tools/setup_debian.sh venv
	@echo "Creating .venv"
	@$(PYTHON) -m venv --clear .venv
	@$(python) -m pip install --quiet --disable-pip-version-check uv
	@touch $@

$(dev): .venv/.uv pyproject.toml
	@echo "Installing the packages of pyproject.toml"
	@$(install) --group dev --editable .
	@touch $@

$(fuzzing): $(dev)
	@echo "Installing the fuzzer"
	@$(install) --group fuzz
	@touch $@

.PHONY: help demo test test-kafka test-spark test-spark-cluster test-spark-connector check soak bench bench-peers bench-growth bench-spark fuzz fixtures fmt clean
