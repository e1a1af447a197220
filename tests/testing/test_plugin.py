"""The plugin as users meet it: pytest, run on a test file of theirs in a process of its own."""

import re

import pytest

pytest_plugins = ["pytester"]

START_UP = re.compile(r"a broker was there after (\d+) ms, (\d+) ms of them for imports")

TESTS = """
    import pytest
    from confluent_kafka import Consumer, Producer, TopicPartition
    from kafka import KafkaConsumer, KafkaProducer

    seen = set()

    @pytest.mark.parametrize("number", range(CONFLUENT_TESTS))
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

    @pytest.mark.parametrize("number", range(KAFKA_PYTHON_TESTS))
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


def numbered(*, confluent_kafka: int, kafka_python: int) -> str:
    """So many tests of each client, of which kafka-python waits a third of a second in each."""
    return TESTS.replace("CONFLUENT_TESTS", str(confluent_kafka)).replace("KAFKA_PYTHON_TESTS", str(kafka_python))


def test_a_hundred_tests_have_a_fresh_topic_each_in_one_process(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(numbered(confluent_kafka=90, kafka_python=10))
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=100)
    told = START_UP.search(result.stdout.str())
    assert told is not None
    assert int(told[1]) > int(told[2]) > 0


def test_each_worker_of_xdist_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(numbered(confluent_kafka=18, kafka_python=2))
    result = pytester.runpytest_subprocess("-n", "2")
    result.assert_outcomes(passed=20)
    told = re.findall(r"penstock: (gw\d): " + START_UP.pattern, result.stdout.str())
    assert sorted(worker for worker, *_ in told) == ["gw0", "gw1"]


def test_tests_with_a_loop_of_their_own_use_the_same_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
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
    result = pytester.runpytest_subprocess("--asyncio-mode=strict")
    result.assert_outcomes(passed=4)


def test_what_one_test_did_to_the_broker_does_not_reach_the_next(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
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
    pytester.runpytest_subprocess().assert_outcomes(passed=5)


def test_what_one_test_did_to_the_cluster_does_not_reach_the_next(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from penstock.client.sync import Producer

        def send(cluster, topic):
            with Producer(cluster.bootstrap) as producer:
                for partition in range(3):
                    producer.send(topic, b"a", partition=partition).result()

        def test_one(penstock_cluster):
            assert len(penstock_cluster.brokers) == 3
            penstock_cluster.create_topic("one", partitions=3)
            send(penstock_cluster, "one")
            penstock_cluster.cut(0, 1)
            penstock_cluster.cut_from_metadata(1)

        def test_two(penstock_cluster):
            penstock_cluster.until_leaders()
            penstock_cluster.brokers[1].create_topic("two", partitions=3)
            send(penstock_cluster, "two")
            penstock_cluster.kill(0)
            penstock_cluster.clock.advance("1 s")

        def test_three(penstock_cluster, penstock_broker):
            assert penstock_cluster.clock.lead_ms == 0
            penstock_cluster.until_leaders()
            send(penstock_cluster, "one")
            send(penstock_cluster, "two")
            assert penstock_broker.is_running
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_fixtures_of_any_scope_can_build_on_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
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
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_factory_starts_brokers_for_one_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
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
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_the_name_of_a_topic_tells_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
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
    pytester.runpytest_subprocess().assert_outcomes(passed=4)


def test_who_does_not_ask_for_a_broker_imports_nothing_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_modules():
            ours = {name for name in sys.modules if name.startswith("penstock")}
            assert ours == {"penstock", "penstock.testing", "penstock.testing.plugin"}
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("penstock:*")


def test_it_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(penstock_broker): pass")
    result = pytester.runpytest_subprocess("-p", "no:penstock")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'penstock_broker' not found*"])
