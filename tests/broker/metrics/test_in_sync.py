"""What a broker does to keep replicas in sync, counted."""

from penstock.broker.metrics.in_sync import InSyncMeter
from penstock.protocol.error_codes import ErrorCode
from tests.broker.copies import TOPIC, copying
from tests.broker.harness import batch, in_loop, until


def test_looks_proposals_and_requests_are_counted() -> None:
    meter = InSyncMeter()
    meter.looked_at(3)
    meter.looked_at(1)
    meter.proposed(20)
    meter.proposed(1)
    assert (meter.looks, meter.proposals, meter.requests) == (4, 21, 2)


@in_loop
async def test_a_leader_that_leaves_a_follower_out_asks_for_that_once_and_stops_looking_when_it_is_back() -> None:
    async with copying(configs={"replica.lag.time.max.ms": "600"}) as copies:
        await copies.create()
        client = await copies.client()
        leader = copies.nodes[copies.leader()].broker
        meter = leader.services.meters.in_sync
        copies.cut(copies.leader(), [copies.followers()[0]])
        proposals, requests = meter.proposals, meter.requests
        assert (await client.produce(TOPIC, batch(b"a"))).error_code == ErrorCode.NONE
        assert (meter.proposals, meter.requests) == (proposals + 1, requests + 1)
        assert meter.looks > 0
        copies.mend()
        await copies.until_equal()
        await until(lambda: not leader._in_sync._behind)
        assert (meter.proposals, meter.requests) == (proposals + 2, requests + 2)
