"""Reading without a group."""

from penstock.testing import Broker
from tests.client.consuming import Stage, read
from tests.waiting import in_loop


@in_loop
async def test_without_a_group_all_partitions_are_read_and_nothing_is_committed(broker: Broker) -> None:
    stage = Stage(broker, partitions=3)
    await stage.fill(10)
    for _ in range(2):
        async with stage.consumer(group_id=None) as consumer:
            assert len(await read(consumer, 30)) == 30
