"""The image that a store holds."""

import pytest

from penstock.machines.cluster_records import PartitionsCreated, Record, TopicCreated, TopicDeleted, encode
from penstock.metadata.memory import MemoryStore, SharedMetadata
from penstock.metadata.reading import read_image, read_prefix
from penstock.metadata.store import EntriesDroppedError, StoreError, StoreRefusedError
from tests.waiting import in_loop

ORDERS, PAYMENTS = bytes(15) + b"\1", bytes(15) + b"\2"


@in_loop
async def test_the_image_is_that_of_the_snapshot_and_of_what_follows_it() -> None:
    entries: list[list[Record]] = [
        [TopicCreated(ORDERS, "orders", {}), PartitionsCreated(ORDERS, 0, ((0,), (1,)))],
        [TopicCreated(PAYMENTS, "payments", {})],
        [TopicDeleted(PAYMENTS)],
    ]
    store = MemoryStore(SharedMetadata())
    await store.open()
    assert (await read_image(store)).topics == {}
    epoch = await store.take_controller_lease(0)
    assert epoch is not None
    for index, records in enumerate(entries, 1):
        await store.append(epoch, index, encode(records, controller_epoch=epoch, index=index))
        if index == 2:
            snapshot = (await read_image(store)).snapshot()
            await store.save_snapshot(epoch, index, encode(snapshot, controller_epoch=epoch, index=index))
    image = await read_image(store)
    assert list(image.topics) == ["orders"]
    assert image.partition_count == 2
    await store.close()


@in_loop
async def test_what_cannot_be_understood_is_refused() -> None:
    store = MemoryStore(SharedMetadata())
    await store.open()
    epoch = await store.take_controller_lease(0)
    assert epoch is not None
    await store.append(epoch, 1, b"\0\0\0\0nonsense")
    with pytest.raises(StoreRefusedError, match="damaged"):
        await read_image(store)
    await store.close()


@in_loop
async def test_a_snapshot_that_is_replaced_meanwhile_is_read_again() -> None:
    class Hasty(MemoryStore):
        """A controller saves a snapshot, and drops entries, after this reader has loaded an older one."""

        left = 1

        async def entries(self, after: int) -> list[tuple[int, bytes]]:
            if self.left:
                self.left -= 1
                raise EntriesDroppedError(after + 1)
            return await super().entries(after)

    store = Hasty(SharedMetadata())
    await store.open()
    epoch = await store.take_controller_lease(0)
    assert epoch is not None
    await store.append(epoch, 1, encode([TopicCreated(ORDERS, "orders", {})], controller_epoch=epoch, index=1))
    image, reader = await read_prefix(store)
    assert (list(image.topics), reader.index) == (["orders"], 1)
    store.left = 100
    with pytest.raises(StoreError, match="try again"):
        await read_prefix(store)
    await store.close()
