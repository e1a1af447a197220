"""How far followers are behind, of real logs."""

from penstock.broker.metrics.follower_lags import bytes_from, follower_lags
from tests.broker.copies import TOPIC, copying
from tests.broker.harness import batch, in_loop, until


@in_loop
async def test_bytes_are_counted_from_an_offset_over_all_segments() -> None:
    async with copying(1) as copies:
        await copies.create(configs={"internal.segment.bytes": "14000"}, copies=1)
        client = await copies.client()
        for number in range(20):
            await client.produce(TOPIC, batch(b"%03d" % number * 1000))
        log = copies.led().log
        assert len(log.segments) > 3
        assert bytes_from(log, 0) == log.size
        assert bytes_from(log, log.end_offset) == 0
        last = log.segments[-1]
        assert bytes_from(log, last.base_offset) == last.size
        # Batches are equally large here, so that a share of offsets is the same share of bytes.
        assert bytes_from(log, 13) == log.size * 7 // 20


@in_loop
async def test_the_lag_of_a_follower_grows_while_it_is_cut_off_and_ends_when_it_has_caught_up() -> None:
    async with copying(2) as copies:
        await copies.create(copies=2, partitions=4)
        leader = copies.leader()
        follower = 1 - leader
        services = copies.nodes[leader].broker.services
        await until(lambda: all(each.leader.followers[follower].end_offset == 0 for each in services.partitions.all()))
        assert follower_lags(services)[follower][:2] == (0, 0)
        copies.cut(leader, [follower])
        client = await copies.client(leader)
        for partition in services.partitions.all():
            for _ in range(partition.index + 1):
                await client.produce(TOPIC, batch(b"a", b"b"), partition=partition.index, acks=1)
        lag = follower_lags(services)[follower]
        led = services.partitions.all()
        assert len(led) == 2
        assert lag.messages == max(each.log.end_offset for each in led)
        assert lag.bytes == sum(each.log.size for each in led) > 0
        copies.mend()
        await until(lambda: follower_lags(services)[follower] == (0, 0, 0))
