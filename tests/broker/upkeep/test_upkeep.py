"""The upkeep of a broker as a whole: it is at work while the broker runs, and nothing of it is left afterwards."""

import asyncio

from tests.broker.harness import Node, in_loop

PARTS = {"penstock-housekeeping", "penstock-scrubbing", "penstock-compacting"}


def at_work() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()} & PARTS


@in_loop
async def test_upkeep_begins_with_the_broker_and_ends_with_it() -> None:
    node = Node()
    await node.start()
    upkeep = node.broker.upkeep
    assert at_work() == PARTS
    assert upkeep.compacting.helper_restarts == upkeep.helper.restarts == 0
    await node.stop()
    assert at_work() == set()
