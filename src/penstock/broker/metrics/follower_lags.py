"""Follower lags say how far other brokers are behind with what this one leads: in messages, bytes and time."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.broker.services import Services
    from penstock.storage.log.log import Log


class FollowerLag(NamedTuple):
    """Messages and time are those of the partition that is worst off; bytes are those of all partitions."""

    messages: int
    bytes: int
    late_ms: int


def follower_lags(services: "Services") -> dict[int, FollowerLag]:
    """The lag of each broker that follows this one."""
    now_ms = int(services.loop.time() * 1000)
    lags: dict[int, FollowerLag] = {}
    for partition in services.partitions.all():
        log = partition.log
        for broker_id, follower in partition.leader.followers.items():
            so_far = lags.setdefault(broker_id, FollowerLag(0, 0, 0))
            # Of one that has not fetched since the election it is only known that it may lack everything.
            offset = max(follower.end_offset, log.start_offset)
            if offset < log.end_offset:
                lags[broker_id] = FollowerLag(
                    max(so_far.messages, log.end_offset - offset),
                    so_far.bytes + bytes_from(log, offset),
                    max(so_far.late_ms, now_ms - follower.caught_up_ms),
                )
    return lags


def bytes_from(log: "Log", offset: int) -> int:
    """About how many bytes of a log lie from an offset on. It is reckoned by offsets, since this may not read a disk:
    the records of a segment count as equally large."""
    found = 0
    for segment in reversed(log.segments):
        offsets = segment.end_offset - segment.base_offset
        missing = segment.end_offset - max(offset, segment.base_offset)
        if missing > 0:
            found += segment.size * missing // offsets
        if segment.base_offset <= offset:
            break
    return found
