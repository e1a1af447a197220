"""Topics are asked for once, again when that is called for, and with patience."""

import asyncio

from penstock.client.background import Background
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, UnknownTopicError
from penstock.client.settings import ProducerSettings
from penstock.client.topic_views import TopicViews
from penstock.protocol.schemas.metadata import MetadataRequest
from tests.client.peer import in_loop, peer


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

        assert len((await views.find("orders", is_fresh=True)).outboxes) == 3
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

        assert view.outboxes[0].leader == 5
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
