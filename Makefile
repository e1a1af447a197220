# Every target does its own set-up in .venv; a second run finds it done. Another Python: make PYTHON=python3.13 test

PYTHON ?= python3
FUZZ_SECONDS ?= 30
FUZZ_FRAMES ?= 1000000
FUZZ_PROCESSES ?= 2
SIMULATE_PROCESSES ?= 2

python := .venv/bin/python
code := src tests tools benchmarks
install := $(python) -m uv pip install --quiet --compile-bytecode --python $(python) \
	--build-constraint requirements/build.txt
# A lock holds for every Python and system that we support, and names no registry: each machine has its own.
compile := $(python) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)
dev := .venv/.dev
fuzzing := .venv/.fuzz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' Makefile

demo: $(dev) ## serve a Kafka client, run three brokers, write, truncate and recover a log, and count it all on Spark
	@$(python) -m tools.demo

# Three workers on two cores, as one of them waits for other processes most of the time. Hundreds of these import the
# package: it is compiled once, whatever the environment says.
test: export PYTHONDONTWRITEBYTECODE =
test: $(dev) ## run the tests on two cores (with real clients, ZooKeeper and promtool: JDK, Maven, Node, kcat, Prometheus)
	@tools/setup_debian.sh cc
# Without it the tests of alarms are skipped, which CI does not allow.
	@tools/setup_debian.sh promtool || [ -z "$$CI" ]
	@$(python) -m tools.clients
	@$(python) -m tools.zookeeper --install
	@$(python) -m pytest --quiet --numprocesses 3 --dist worksteal

test-kafka: $(dev) ## run the SDK's tests against an Apache Kafka (JDK, Maven)
	@tools/setup_debian.sh java mvn
	@PENSTOCK_TEST_KAFKA=1 $(python) -m pytest --quiet --override-ini timeout=900 tests/kafka

test-spark: $(dev) ## run all tests that start Spark, of which `make test` has a few; with a million messages (13 minutes; JDK, Maven)
	@tools/setup_debian.sh java mvn
	@PENSTOCK_TEST_SPARK=1 SOAK_MESSAGES=1000000 $(python) -m pytest --quiet tests/spark tests/cli tests/docs tests/tools \
		tests/system/test_spark_kills.py tests/system/test_spark_rides_along.py

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

soak: $(dev) ## kill and attack brokers, take their power, compact millions of updates, all scenarios of groups (SOAK_SEED=1)
	@tools/setup_debian.sh losetup mkfs.ext4 mount
	@$(python) -m tools.clients
	@SOAK_KILLS=30 SOAK_POWER_LOSSES=15 SOAK_RUNS=20 SOAK_GROUPS=1 SOAK_UPDATES=5000000 SOAK_HOSTILE=1 $(python) -m pytest -s \
		tests/system/test_replication.py tests/system/test_coordinator_failover.py tests/system/test_crashes.py tests/system/test_power_loss.py tests/system/test_compaction.py \
		tests/clients/test_groups.py tests/clients/test_error_table.py tests/hostile

bench: $(dev) ## measure the broker beside a C program, codec, log and SDK beside their peers (15 minutes; C compiler)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks

bench-requests: $(dev) ## measure CPU of requests and latency beside a warm Apache Kafka (PARTS=fetch; C compiler, JDK, Maven)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks.requests $(PARTS) $(if $(QUICK),--quick)

bench-peers: $(dev) ## measure the broker beside Apache Kafka, Redis, NATS and RabbitMQ (PARTS="kafka redis"; C compiler)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks.peers $(PARTS) $(if $(QUICK),--quick)

bench-growth: $(dev) ## measure it with more partitions, connections and data, and in a surge (PARTS, BESIDE=HEAD~1, GB=5; C compiler)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks.growth $(PARTS) $(if $(QUICK),--quick) $(if $(BESIDE),--beside $(BESIDE)) $(if $(GB),--gigabytes $(GB))

bench-versions: $(dev) ## measure the broker beside that of another revision (OLD=HEAD~1; 15 minutes; C compiler)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks.versions $(or $(OLD),HEAD~1)

bench-cluster: $(dev) ## measure 10,000 partitions on three brokers over ZooKeeper (PARTS="wide replicated"; 15 minutes; C compiler, JDK, Maven)
	@tools/setup_debian.sh cc java mvn
	@$(python) -m benchmarks.cluster $(PARTS) $(if $(QUICK),--quick)

bench-processes: $(dev) ## measure two brokers of one host beside one (10 minutes; QUICK=1: 3; C compiler)
	@tools/setup_debian.sh cc
	@$(python) -m benchmarks.cluster.processes $(if $(QUICK),--quick)

bench-spark: $(dev) ## measure source, archive and micro-batches beside Spark's own (15 minutes; QUICK=1: 4; JDK, Maven)
	@tools/setup_debian.sh java mvn
	@$(python) -m benchmarks.spark $(if $(QUICK),--quick)

fuzz: $(fuzzing) ## fuzz the decoders for FUZZ_SECONDS=30, then a broker with FUZZ_FRAMES=1000000 (half an hour; C compiler)
	@$(python) -m tools.fuzz --seconds $(FUZZ_SECONDS)
	@tools/setup_debian.sh cc
	@$(python) -m tools.fuzz_frames --frames $(FUZZ_FRAMES) --processes $(FUZZ_PROCESSES)

simulate: $(dev) ## run schedules full of faults (KIND=replication SEEDS=1:20000; all: 45 minutes; goes on where it was)
	@$(python) -m tools.simulate $(KIND) $(if $(SEEDS),--seeds $(SEEDS)) --processes $(SIMULATE_PROCESSES)

chaos: $(dev) ## break a cluster of three in network namespaces (FAULTS=kill,mixed ROUNDS=10 SEED=1 SYSTEM=penstock,kafka; JDK, Maven, C compiler)
	@tools/setup_debian.sh ip java mvn cc losetup mkfs.ext4 mount
	@$(python) -m tools.chaos $(if $(SYSTEM),--systems $(SYSTEM)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED))

first-hour: ## do what a new user does: clone, install, a wheel in an empty environment, every guide (10 minutes)
	@$(PYTHON) -m tools.first_hour

fixtures: $(dev) ## capture batches from real clients and show ours to a real Apache Kafka (JDK, Maven, Node)
	@tools/setup_debian.sh java mvn node npm
	@$(python) -m tools.fixtures

fmt: $(dev) ## format the code and repair what lint can repair
	@$(python) -m ruff check --quiet --fix --exit-zero $(code)
	@$(python) -m ruff format --quiet $(code)

lock: .venv/.uv ## write what is installed, with hashes, to requirements/ (UPGRADE=1: the newest of everything)
	@$(compile) pyproject.toml --group dev --output-file requirements/dev.txt
	@$(compile) --group build --output-file requirements/build.txt
	@$(compile) --group fuzz --constraint requirements/dev.txt --output-file requirements/fuzz.txt
	@$(compile) --group installer --output-file requirements/uv.txt

clean: ## delete the environment and every cache
	@rm -rf .venv .cache .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so that an interrupted set-up is done again.
.venv/.uv:
	@PYTHON='$(PYTHON)' tools/setup_debian.sh venv
	@echo "Creating .venv"
	@$(PYTHON) -m venv --clear .venv
	@$(python) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/uv.txt
	@touch $@

$(dev): .venv/.uv pyproject.toml requirements/dev.txt requirements/build.txt
	@echo "Installing the packages of requirements/dev.txt"
	@$(install) --require-hashes --requirement requirements/dev.txt
	@$(install) --no-deps --editable .
	@touch $@

$(fuzzing): $(dev) requirements/fuzz.txt
	@echo "Installing the fuzzer"
	@$(install) --require-hashes --requirement requirements/fuzz.txt
	@touch $@

.PHONY: help demo test test-kafka test-spark test-spark-cluster test-spark-connector check soak bench bench-requests bench-peers bench-growth bench-versions bench-cluster bench-processes bench-spark fuzz simulate chaos first-hour fixtures fmt lock clean
