"""The plugin as users meet it: pytest, run on a test file of theirs in a process of its own."""

import os
import re
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

HUNDRED = """
    import pytest
    from confluent_kafka import Consumer, Producer, TopicPartition
    from kafka import KafkaConsumer, KafkaProducer

    seen = set()

    @pytest.mark.parametrize("number", range(50))
    def test_confluent_kafka(penstock_broker, penstock_topic, number):
        assert penstock_topic not in seen
        seen.add(penstock_topic)
        value = str(number).encode()
        producer = Producer({"bootstrap.servers": penstock_broker.bootstrap})
        producer.produce(penstock_topic, value)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": penstock_broker.bootstrap, "group.id": penstock_topic})
        consumer.assign([TopicPartition(penstock_topic, 0, 0)])
        message = consumer.poll(30)
        assert (message.offset(), message.value()) == (0, value)
        consumer.close()

    @pytest.mark.parametrize("number", range(50))
    def test_kafka_python(penstock_broker, penstock_topic, number):
        assert penstock_topic not in seen
        seen.add(penstock_topic)
        value = str(number).encode()
        producer = KafkaProducer(bootstrap_servers=penstock_broker.bootstrap)
        assert producer.send(penstock_topic, value).get(30).offset == 0
        producer.close()
        consumer = KafkaConsumer(
            penstock_topic, bootstrap_servers=penstock_broker.bootstrap, auto_offset_reset="earliest"
        )
        assert next(consumer).value == value
        consumer.close()
"""

START_UP = re.compile(r"a broker was there after (\d+) ms, (\d+) ms of them for imports")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which Python has what it compiled before, as it has after an installation."""
    environment = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode"))}
    subprocess.run(
        [sys.executable, "-c", "import penstock.testing.broker, _pytest.pytester"],
        env={**os.environ, **environment},
        check=True,
    )
    return environment


@pytest.fixture
def users(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, compiled: dict[str, str]) -> pytest.Pytester:
    """A folder of a user."""
    for name, value in compiled.items():
        monkeypatch.setenv(name, value)
    return pytester


def test_a_hundred_tests_have_a_fresh_topic_each_in_one_process(users: pytest.Pytester) -> None:
    users.makepyfile(HUNDRED)
    result = users.runpytest_subprocess()
    result.assert_outcomes(passed=100)
    told = START_UP.search(result.stdout.str())
    assert told is not None
    assert int(told[1]) > int(told[2]) > 0


def test_each_worker_of_xdist_has_a_broker_of_its_own(users: pytest.Pytester) -> None:
    users.makepyfile(HUNDRED)
    result = users.runpytest_subprocess("-n", "2")
    result.assert_outcomes(passed=100)
    told = re.findall(r"penstock: (gw\d): " + START_UP.pattern, result.stdout.str())
    assert sorted(worker for worker, *_ in told) == ["gw0", "gw1"]


def test_tests_with_a_loop_of_their_own_use_the_same_fixtures(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import asyncio
        import pytest
        import pytest_asyncio
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        @pytest_asyncio.fixture
        async def producer(penstock_broker):
            async with AIOKafkaProducer(bootstrap_servers=penstock_broker.bootstrap) as producer:
                yield producer

        @pytest.mark.asyncio
        @pytest.mark.parametrize("number", range(3))
        async def test_with_pytest_asyncio(penstock_broker, penstock_topic, producer, number):
            assert (await producer.send_and_wait(penstock_topic, b"a")).offset == 0
            async with AIOKafkaConsumer(
                penstock_topic, bootstrap_servers=penstock_broker.bootstrap, auto_offset_reset="earliest"
            ) as consumer:
                assert (await consumer.getone()).value == b"a"

        def test_with_a_loop_by_hand(penstock_broker, penstock_topic):
            async def main():
                async with AIOKafkaProducer(bootstrap_servers=penstock_broker.bootstrap) as producer:
                    assert (await producer.send_and_wait(penstock_topic, b"a")).offset == 0

            asyncio.run(main())
        """
    )
    result = users.runpytest_subprocess("--asyncio-mode=strict")
    result.assert_outcomes(passed=4)


def test_what_one_test_did_to_the_broker_does_not_reach_the_next(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import pytest
        from confluent_kafka import Producer

        def produce(broker, topic):
            outcomes = []
            producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 1000, "log_level": 2})
            producer.produce(topic, b"a", on_delivery=lambda error, message: outcomes.append(error))
            producer.flush(30)
            return outcomes[0] is None

        def test_one(penstock_broker, penstock_topic):
            penstock_broker.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", count=None)
            assert not produce(penstock_broker, penstock_topic)

        def test_two(penstock_broker, penstock_topic):
            assert produce(penstock_broker, penstock_topic)
            penstock_broker.faults.fail_disk()
            assert not produce(penstock_broker, penstock_topic)

        def test_three(penstock_broker, penstock_topic):
            assert produce(penstock_broker, penstock_topic)
            penstock_broker.clock.advance("7 days")

        def test_four(penstock_broker, penstock_topic):
            assert penstock_broker.clock.lead_ms == 0
            assert produce(penstock_broker, penstock_topic)
            penstock_broker.kill()

        def test_five(penstock_broker, penstock_topic):
            assert produce(penstock_broker, penstock_topic)
        """
    )
    users.runpytest_subprocess().assert_outcomes(passed=5)


def test_fixtures_of_any_scope_can_build_on_the_broker(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def orders(penstock_broker):
            return penstock_broker.create_topic("orders", partitions=3)

        @pytest.fixture(scope="module")
        def bootstrap(penstock_broker):
            return penstock_broker.bootstrap

        def test_one(orders, bootstrap, penstock_broker):
            assert orders == "orders"
            assert bootstrap == penstock_broker.bootstrap
        """
    )
    users.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_factory_starts_brokers_for_one_test(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import threading

        def test_one(penstock_broker_factory):
            small = penstock_broker_factory({"message.max.bytes": 1000}, storage="memory")
            other = penstock_broker_factory(num_partitions=3)
            assert small.bootstrap != other.bootstrap

        def test_two():
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]
        """
    )
    users.runpytest_subprocess().assert_outcomes(passed=2)


def test_the_name_of_a_topic_tells_its_test(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("text", ["a b/c", "ä" * 300, "x" * 300])
        def test_topic(penstock_topic, text):
            assert penstock_topic.startswith("test_topic")
            assert len(penstock_topic) <= 249

        def test_plain(penstock_topic):
            assert penstock_topic == "test_plain-4"
        """
    )
    users.runpytest_subprocess().assert_outcomes(passed=4)


def test_who_does_not_ask_for_a_broker_imports_nothing_of_it(users: pytest.Pytester) -> None:
    users.makepyfile(
        """
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.startswith("penstock")}
            assert ours == {"penstock", "penstock.testing", "penstock.testing.plugin"}
        """
    )
    result = users.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("penstock:*")


def test_it_can_be_switched_off(users: pytest.Pytester) -> None:
    users.makepyfile("def test_one(penstock_broker): pass")
    result = users.runpytest_subprocess("-p", "no:penstock")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'penstock_broker' not found*"])
