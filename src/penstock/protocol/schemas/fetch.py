"""Schema tables: fetch. Written by tools/generate_schemas.py; edit that instead."""

from collections.abc import Sequence

from penstock.protocol.schema import ZERO_UUID, Message, Records, row


class ReplicaState(Message):
    replica_id: int = row("int32", "15+", default=-1)
    replica_epoch: int = row("int64", "15+", default=-1)


class FetchPartition(Message):
    partition: int = row("int32", "0+", default=0)
    current_leader_epoch: int = row("int32", "9+", default=-1, ignorable=True)
    fetch_offset: int = row("int64", "0+", default=0)
    last_fetched_epoch: int = row("int32", "12+", default=-1)
    log_start_offset: int = row("int64", "5+", default=-1, ignorable=True)
    partition_max_bytes: int = row("int32", "0+", default=0)
    replica_directory_id: bytes = row("uuid", "17+", default=ZERO_UUID, tag=0, tagged="17+", ignorable=True)
    high_watermark: int = row("int64", "18+", default=9223372036854775807, tag=1, tagged="18+", ignorable=True)


class FetchTopic(Message):
    topic: str = row("string", "0-12", default="", ignorable=True)
    topic_id: bytes = row("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[FetchPartition] = row([FetchPartition], "0+", default=())


class ForgottenTopic(Message):
    topic: str = row("string", "7-12", default="", ignorable=True)
    topic_id: bytes = row("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[int] = row(["int32"], "7+", default=())


class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = row("string", "12+", default=None, nullable="12+", tag=0, tagged="12+", ignorable=True)
    replica_id: int = row("int32", "0-14", default=-1)
    replica_state: ReplicaState = row(ReplicaState, "15+", factory=ReplicaState, tag=1, tagged="15+")
    max_wait_ms: int = row("int32", "0+", default=0)
    min_bytes: int = row("int32", "0+", default=0)
    max_bytes: int = row("int32", "3+", default=2147483647, ignorable=True)
    isolation_level: int = row("int8", "4+", default=0, ignorable=True)
    session_id: int = row("int32", "7+", default=0, ignorable=True)
    session_epoch: int = row("int32", "7+", default=-1, ignorable=True)
    topics: Sequence[FetchTopic] = row([FetchTopic], "0+", default=())
    forgotten_topics_data: Sequence[ForgottenTopic] = row([ForgottenTopic], "7+", default=())
    rack_id: str = row("string", "11+", default="", ignorable=True)


class EpochEndOffset(Message):
    epoch: int = row("int32", "12+", default=-1)
    end_offset: int = row("int64", "12+", default=-1)


class LeaderIdAndEpoch(Message):
    leader_id: int = row("int32", "12+", default=-1)
    leader_epoch: int = row("int32", "12+", default=-1)


class SnapshotId(Message):
    end_offset: int = row("int64", "0+", default=-1)
    epoch: int = row("int32", "0+", default=-1)


class AbortedTransaction(Message):
    producer_id: int = row("int64", "4+", default=0)
    first_offset: int = row("int64", "4+", default=0)


class PartitionData(Message):
    partition_index: int = row("int32", "0+", default=0)
    error_code: int = row("int16", "0+", default=0)
    high_watermark: int = row("int64", "0+", default=0)
    last_stable_offset: int = row("int64", "4+", default=-1, ignorable=True)
    log_start_offset: int = row("int64", "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = row(EpochEndOffset, "12+", factory=EpochEndOffset, tag=0, tagged="12+")
    current_leader: LeaderIdAndEpoch = row(LeaderIdAndEpoch, "12+", factory=LeaderIdAndEpoch, tag=1, tagged="12+")
    snapshot_id: SnapshotId = row(SnapshotId, "12+", factory=SnapshotId, tag=2, tagged="12+")
    aborted_transactions: Sequence[AbortedTransaction] | None = row(
        [AbortedTransaction], "4+", default=(), nullable="4+", ignorable=True
    )
    preferred_read_replica: int = row("int32", "11+", default=-1)
    records: Records | None = row("records", "0+", default=None, nullable="0+")


class FetchableTopicResponse(Message):
    topic: str = row("string", "0-12", default="", ignorable=True)
    topic_id: bytes = row("uuid", "13+", default=ZERO_UUID, ignorable=True)
    partitions: Sequence[PartitionData] = row([PartitionData], "0+", default=())


class NodeEndpoint(Message):
    node_id: int = row("int32", "16+", default=0)
    host: str = row("string", "16+", default="")
    port: int = row("int32", "16+", default=0)
    rack: str | None = row("string", "16+", default=None, nullable="16+")


class FetchResponse(Message, key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = row("int32", "1+", default=0, ignorable=True)
    error_code: int = row("int16", "7+", default=0, ignorable=True)
    session_id: int = row("int32", "7+", default=0)
    responses: Sequence[FetchableTopicResponse] = row([FetchableTopicResponse], "0+", default=())
    node_endpoints: Sequence[NodeEndpoint] = row([NodeEndpoint], "16+", default=(), tag=0, tagged="16+")
