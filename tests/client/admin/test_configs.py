"""Configs against scripted brokers: who is asked, what is told of each, and how they are changed."""

from penstock.client.admin.configs import (
    Config,
    ConfigChange,
    ConfigSource,
    ConfigSynonym,
    Operation,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from penstock.client.cluster.cluster import Cluster
from penstock.client.errors import BadReplyError, BrokerError, UnknownTopicError, UnsendableError, unwrap
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
)
from tests.client.peer import Peer, peer, peers
from tests.waiting import in_loop

ORDERS = Resource(ResourceType.TOPIC, "orders")
FIRST = Resource(ResourceType.BROKER, "0")
SECOND = Resource(ResourceType.BROKER, "1")
ALL_BROKERS = Resource(ResourceType.BROKER, "")


def describing(broker: Peer, **codes: int) -> None:
    broker.answers[DescribeConfigsRequest] = lambda request: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                error_code=codes.get(each.resource_name, 0),
                configs=[
                    DescribeConfigsResourceResult(
                        name="answered.by", value=str(broker.node_id), config_source=5, read_only=True
                    ),
                    DescribeConfigsResourceResult(
                        name="secret",
                        value=None,
                        is_sensitive=True,
                        config_source=99,
                        documentation="Hush." if request.include_documentation else "",
                        synonyms=[DescribeConfigsSynonym(name="old.secret", value=None, source=4)],
                    ),
                ],
            )
            for each in request.resources
        ]
    )


def altering(broker: Peer, **codes: int) -> None:
    broker.answers[IncrementalAlterConfigsRequest] = lambda request: IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseAlterConfigsResourceResponse(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                error_code=codes.get(each.resource_name, 0),
                error_message="no number" if each.resource_name in codes else None,
            )
            for each in request.resources
        ]
    )


@in_loop
async def test_configs_are_told_with_their_sources() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        describing(broker)
        wanted = describe_configs(cluster, [ORDERS], names=["secret"], synonyms=True, documentation=True)
        configs = unwrap(await wanted)[ORDERS]
        assert configs["answered.by"] == Config(
            name="answered.by", value="0", source=ConfigSource.DEFAULT, is_read_only=True, is_sensitive=False
        )
        assert configs["secret"] == Config(
            name="secret",
            value=None,
            source=ConfigSource.UNKNOWN,
            is_read_only=False,
            is_sensitive=True,
            synonyms=(ConfigSynonym("old.secret", None, ConfigSource.STATIC_BROKER),),
            documentation="Hush.",
        )
        (request,) = broker.requests(DescribeConfigsRequest)
        assert (request.include_synonyms, request.include_documentation) == (True, True)
        assert list(request.resources[0].configuration_keys or ()) == ["secret"]


@in_loop
async def test_all_configs_are_told_if_none_is_named() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        describing(broker)
        assert unwrap(await describe_configs(cluster, [ORDERS]))[ORDERS]["secret"].documentation is None
        assert broker.requests(DescribeConfigsRequest)[0].resources[0].configuration_keys is None


@in_loop
async def test_each_broker_is_asked_for_its_own_configs() -> None:
    async with peers(2) as (first, second), Cluster(first.address) as cluster:
        describing(first)
        describing(second)
        outcomes = unwrap(await describe_configs(cluster, [SECOND, FIRST, ALL_BROKERS, ORDERS]))
        assert list(outcomes) == [SECOND, FIRST, ALL_BROKERS, ORDERS]
        assert [outcomes[each]["answered.by"].value for each in (FIRST, SECOND)] == ["0", "1"]


@in_loop
async def test_each_resource_has_its_own_outcome() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        describing(broker, ordes=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        misspelt, away = Resource(ResourceType.TOPIC, "ordes"), Resource(ResourceType.BROKER, "7")
        outcomes = await describe_configs(cluster, [misspelt, away, ORDERS])
        unknown = outcomes[misspelt]
        assert isinstance(unknown, UnknownTopicError)
        assert unknown.near == ("orders",)
        assert isinstance(outcomes[away], BrokerError)
        assert "answered.by" in unwrap({ORDERS: outcomes[ORDERS]})[ORDERS]


@in_loop
async def test_documentation_is_not_asked_of_a_broker_that_has_none() -> None:
    async with peer(orders=[0]) as broker, Cluster(broker.address) as cluster:
        broker.offer(DescribeConfigsRequest, 1, 2)
        describing(broker)
        assert isinstance((await describe_configs(cluster, [ORDERS], documentation=True))[ORDERS], UnsendableError)
        unwrap(await describe_configs(cluster, [ORDERS]))


@in_loop
async def test_a_resource_that_the_answer_leaves_out_is_an_error() -> None:
    async with peer() as broker, Cluster(broker.address) as cluster:
        broker.answers[DescribeConfigsRequest] = lambda _: DescribeConfigsResponse()
        assert isinstance((await describe_configs(cluster, [ORDERS]))[ORDERS], BadReplyError)


@in_loop
async def test_configs_are_changed_one_by_one() -> None:
    async with peers(2, orders=[0]) as (first, second), Cluster(first.address) as cluster:
        first.layout.controller = 1
        altering(first)
        altering(second, orders=ErrorCode.INVALID_CONFIG)
        changes = {
            ORDERS: [ConfigChange("retention.ms", "x"), ConfigChange("cleanup.policy", "compact", Operation.APPEND)],
            FIRST: [ConfigChange("log.cleaner.threads", None, Operation.DELETE)],
        }
        outcomes = await alter_configs(cluster, changes, validate_only=True)
        assert isinstance(outcomes[ORDERS], BrokerError)
        assert "topic 'orders': no number" in str(outcomes[ORDERS])
        assert outcomes[FIRST] is None
        (to_controller,) = second.requests(IncrementalAlterConfigsRequest)
        (to_first,) = first.requests(IncrementalAlterConfigsRequest)
        assert to_controller.validate_only
        assert [
            (change.name, change.config_operation, change.value) for change in to_controller.resources[0].configs
        ] == [("retention.ms", 0, "x"), ("cleanup.policy", 2, "compact")]
        assert [(change.name, change.config_operation, change.value) for change in to_first.resources[0].configs] == [
            ("log.cleaner.threads", 1, None)
        ]


def test_a_resource_is_written_as_one_would_say_it() -> None:
    assert str(ORDERS) == "topic 'orders'"
    assert str(ALL_BROKERS) == "all brokers"
    assert str(Resource(ResourceType.BROKER_LOGGER, "3")) == "broker logger '3'"
