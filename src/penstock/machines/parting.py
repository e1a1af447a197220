"""Says where the log of a follower parts from its leader's, by the rules for epochs (KIP-320, KIP-595)."""

from typing import Protocol

from penstock.machines.partition_follower import Epochs
from penstock.machines.partition_leader import PartitionLeader
from penstock.protocol.error_codes import ErrorCode


class LeaderLog(Protocol):
    @property
    def epochs(self) -> Epochs: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


def parting(
    leader: PartitionLeader, log: LeaderLog, broker_id: int, *, leader_epoch: int, offset: int, last_fetched_epoch: int
) -> ErrorCode | tuple[int, int] | None:
    """A follower fetches from an offset, and says whom it takes for the leader and which epoch its last record is of.
    None if its log is a beginning of this one. Otherwise the error, or the largest epoch of this log up to the
    follower's last one, and where that ends."""
    if leader_epoch != leader.leader_epoch:
        is_old = leader_epoch < leader.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    if broker_id not in leader.followers:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if last_fetched_epoch >= 0:
        epoch, end = log.epochs.end_offset(last_fetched_epoch, log.end_offset)
        if epoch < 0:
            # All records of that epoch are deleted here, and there is no epoch to name: the follower begins anew.
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if epoch < last_fetched_epoch or end < offset:
            return epoch, end
    if not log.start_offset <= offset <= log.end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return None
