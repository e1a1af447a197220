"""The choice of a partition, by every name and by a function; and when a producer asks for its topics."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import ClientError, UnknownTopicError
from penstock.client.metadata import Partition, Topic
from penstock.client.producer.background import Background
from penstock.client.producer.topics import TopicView, TopicViews, partitioner
from penstock.client.settings import ProducerSettings, SettingsError
from penstock.machines.partitioners import jump_partition_of_key, partition_of_key
from penstock.protocol.schemas.metadata import MetadataRequest
from tests.client.peer import peer
from tests.waiting import in_loop

BATCH_SIZE = 1_000


def view_of(*leaders: int) -> TopicView:
    view = TopicView("orders")
    view.update(topic_of(*leaders))
    return view


def topic_of(*leaders: int) -> Topic:
    partitions = tuple(Partition(index, leader, 0, (leader,), (leader,)) for index, leader in enumerate(leaders))
    return Topic("orders", bytes(16), False, partitions)


@pytest.mark.parametrize(("name", "expected"), [("murmur2", partition_of_key), ("jump", jump_partition_of_key)])
def test_a_key_has_its_partition(name: str, expected) -> None:  # type: ignore[no-untyped-def]
    choose, view = partitioner(name, BATCH_SIZE), view_of(*[0] * 7)

    for key in [b"%d" % number for number in range(100)] * 2 + [b"long" * 100]:
        assert choose(view, key, 10).partition == expected(key, 7)


def test_a_key_keeps_its_partition_though_nobody_leads_it() -> None:
    choose, view = partitioner("murmur2", BATCH_SIZE), view_of(-1, -1, 0)

    assert {choose(view, b"%d" % number, 10).partition for number in range(50)} == {0, 1, 2}


@pytest.mark.parametrize("name", ["murmur2", "jump", "sticky", "random", "round_robin"])
def test_messages_without_a_key_avoid_partitions_that_cannot_be_written_to(name: str) -> None:
    choose, view = partitioner(name, BATCH_SIZE), view_of(0, -1, 0, -1, 0)

    assert {choose(view, None, 300).partition for _ in range(200)} == {0, 2, 4}


def test_when_no_partition_can_be_written_to_any_will_do() -> None:
    choose, view = partitioner("round_robin", BATCH_SIZE), view_of(-1, -1)

    assert {choose(view, None, 10).partition for _ in range(4)} == {0, 1}


def test_a_sticky_choice_stays_for_a_batch_and_then_moves() -> None:
    choose, view = partitioner("sticky", BATCH_SIZE), view_of(0, 0, 0)
    chosen = [choose(view, b"key", 200).partition for _ in range(40)]

    # Four records of 200 bytes and the header of a batch fit 1000 bytes.
    runs = [chosen[start : start + 4] for start in range(0, 40, 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(one[0] != following[0] for one, following in pairwise(runs))


def test_round_robin_takes_turns_whatever_the_keys() -> None:
    choose, view = partitioner("round_robin", BATCH_SIZE), view_of(0, 0, 0)

    assert [choose(view, b"same", 10).partition for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_chance_reaches_all_partitions() -> None:
    choose, view = partitioner("random", BATCH_SIZE), view_of(0, 0, 0)

    assert min(Counter(choose(view, b"same", 10).partition for _ in range(600)).values()) > 100


def test_new_partitions_have_queues_and_old_ones_keep_theirs() -> None:
    view = view_of(0, 0)
    before = list(view.queues)
    view.update(topic_of(1, 1, 2))

    assert view.queues[:2] == before
    assert [queue.leader for queue in view.queues] == [1, 1, 2]
    assert list(view.partitions) == [0, 1, 2]
    view.update(topic_of(1))
    assert [queue.leader for queue in view.queues] == [1, -1, -1]


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SettingsError, match="must be one of 'murmur2', 'jump'"):
        partitioner("crc32", BATCH_SIZE)


class Heard:
    def __init__(self) -> None:
        self.told: list[dict[str, ClientError | None]] = []
        self.wanted: list[set[str]] = []
        self.event = asyncio.Event()

    def __call__(self, topics: dict[str, ClientError | None]) -> set[str]:
        self.told.append(topics)
        self.event.set()
        return self.wanted.pop() if self.wanted else set()


@in_loop
async def test_a_topic_is_asked_for_once_and_again_if_it_must_be_fresh() -> None:
    async with peer(orders=[0, 0]) as broker, Cluster(broker.address) as cluster:
        background = Background()
        views = TopicViews(cluster, ProducerSettings(), background, Heard())
        one, other = await asyncio.gather(views.find("orders"), views.find("orders"))
        assert one is other is await views.find("orders")
        assert len(broker.requests(MetadataRequest)) == 1
        broker.layout.leaders["orders"] = [0, 0, 0]

        assert len((await views.find("orders", is_fresh=True)).queues) == 3
        await background.end()


@in_loop
async def test_what_is_wanted_is_asked_for_again_until_it_is_known() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        background, heard = Background(), Heard()
        views = TopicViews(cluster, ProducerSettings(), background, heard)
        view = await views.find("orders")
        heard.wanted = [{"orders"}, {"orders"}]
        broker.layout.leaders["orders"] = [5]
        views.refresh("orders")
        views.refresh("orders")
        while len(heard.told) < 3:
            heard.event.clear()
            await heard.event.wait()

        assert view.queues[0].leader == 5
        assert heard.told == [{"orders": None}] * 3
        await background.end()


@in_loop
async def test_a_topic_that_is_gone_is_told() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        background, heard = Background(), Heard()
        views = TopicViews(cluster, ProducerSettings(), background, heard)
        await views.find("orders")
        del broker.layout.leaders["orders"]
        views.refresh("orders")
        await heard.event.wait()

        assert isinstance(heard.told[0]["orders"], UnknownTopicError)
        await background.end()


@in_loop
async def test_what_is_old_is_asked_for_again() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        background, heard = Background(), Heard()
        views = TopicViews(cluster, ProducerSettings(metadata_max_age_ms=5), background, heard)
        await views.find("orders")
        while len(heard.told) < 3:
            heard.event.clear()
            await heard.event.wait()
        await background.end()
