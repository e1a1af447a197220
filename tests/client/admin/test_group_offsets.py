"""Offsets of groups: on a real broker, and on scripted ones where a refusal is needed."""

from penstock.client.admin.group_offsets import (
    CommittedOffset,
    Identity,
    commit_as,
    commit_offsets,
    delete_offsets,
    fetch_offsets,
    group_offsets,
)
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import (
    BadReplyError,
    BrokerError,
    unwrap,
)
from penstock.client.metadata import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from penstock.protocol.schemas.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.broker.harness import running
from tests.client.admin.test_groups import CLICKS, ORDERS, cluster_of, scripted, with_topics
from tests.client.peer import peer
from tests.waiting import in_loop


@in_loop
async def test_offsets_are_committed_read_and_deleted() -> None:
    async with running() as node, cluster_of(node) as cluster:
        await with_topics(node)
        offsets = {ORDERS: CommittedOffset(5, 0, "note"), CLICKS: CommittedOffset(7)}
        assert await commit_offsets(cluster, "g", offsets) == {ORDERS: None, CLICKS: None}
        found = unwrap(await group_offsets(cluster, ["g", "other"]))
        assert found == {"g": offsets, "other": {}}
        assert await delete_offsets(cluster, "g", [ORDERS]) == {ORDERS: None}
        assert unwrap(await group_offsets(cluster, ["g"])) == {"g": {CLICKS: CommittedOffset(7)}}


@in_loop
async def test_a_topic_that_does_not_exist_takes_no_other_with_it() -> None:
    async with running() as node, cluster_of(node) as cluster:
        await with_topics(node)
        nowhere = TopicPartition("nowhere", 0)
        outcomes = await commit_offsets(cluster, "g", {nowhere: CommittedOffset(1), ORDERS: CommittedOffset(2)})
        assert outcomes[ORDERS] is None
        assert isinstance(outcomes[nowhere], BrokerError)
        assert list(unwrap(await group_offsets(cluster, ["g"]))["g"]) == [ORDERS]


@in_loop
async def test_a_commit_goes_to_the_coordinator_that_is_there_in_the_end() -> None:
    async with running() as node, peer() as broker, Cluster(broker.address) as cluster:
        await with_topics(node)
        refusing = True

        def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            host, port = broker.layout.addresses[0] if refusing else node.broker.address
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key=key, node_id=0, host=host, port=port) for key in request.coordinator_keys]
            )

        def refuse(_: OffsetCommitRequest) -> OffsetCommitResponse:
            nonlocal refusing
            refusing = False
            refused = OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.NOT_COORDINATOR)
            return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="orders", partitions=[refused])])

        broker.answers[FindCoordinatorRequest] = find
        broker.answers[OffsetCommitRequest] = refuse
        assert await commit_offsets(cluster, "g", {ORDERS: CommittedOffset(3)}) == {ORDERS: None}
        assert unwrap(await group_offsets(cluster, ["g"]))["g"] == {ORDERS: CommittedOffset(3)}


@in_loop
async def test_what_a_broker_leaves_out_has_an_unknown_outcome() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        scripted(broker)
        broker.answers[OffsetCommitRequest] = lambda _: OffsetCommitResponse()
        outcome = (await commit_offsets(cluster, "g", {ORDERS: CommittedOffset(3)}))[ORDERS]
        assert isinstance(outcome, BadReplyError)
        assert outcome.outcome_unknown


@in_loop
async def test_offsets_that_may_not_be_seen_are_an_error() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        scripted(broker)
        broker.answers[OffsetFetchRequest] = lambda request: (
            OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if request.group_id == "a"
            else OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name="orders",
                        partitions=[
                            OffsetFetchResponsePartition(
                                partition_index=0,
                                committed_offset=-1,
                                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                            )
                        ],
                    )
                ]
            )
        )
        found = await group_offsets(cluster, ["a", "b"])
        assert "GROUP_AUTHORIZATION_FAILED" in str(found["a"])
        assert "the offset of group 'b' in orders-0: " in str(found["b"])


@in_loop
async def test_a_member_commits_under_its_identity_and_reads_some_partitions() -> None:
    async with running() as node, cluster_of(node) as cluster:
        await with_topics(node)
        offsets = {ORDERS: CommittedOffset(5, 0, "note"), CLICKS: CommittedOffset(7)}
        assert await commit_as(cluster, "g", offsets, Identity()) == {ORDERS: 0, CLICKS: 0}
        stranger = Identity("stranger", 3)
        assert await commit_as(cluster, "g", offsets, stranger) == dict.fromkeys(offsets, ErrorCode.UNKNOWN_MEMBER_ID)
        untouched = TopicPartition("clicks", 0)
        assert await fetch_offsets(cluster, "g", [ORDERS, untouched]) == {ORDERS: offsets[ORDERS], untouched: None}
        assert await fetch_offsets(cluster, "g", [CLICKS], stable=True) == {CLICKS: offsets[CLICKS]}
