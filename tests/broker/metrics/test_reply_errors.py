"""Errors are found in replies wherever they may stand."""

import pytest

from penstock.broker.metrics.reply_errors import error_counter
from penstock.protocol.apis import all_apis
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message
from penstock.protocol.schemas.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.protocol.schemas.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from penstock.protocol.schemas.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from penstock.protocol.schemas.versions import ApiVersionsResponse

LOST = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def errors_in(response: Message) -> dict[int, int]:
    errors: dict[int, int] = {}
    error_counter(type(response))(response, errors)
    return errors


def test_an_error_of_the_whole_reply_is_found() -> None:
    assert errors_in(ApiVersionsResponse(error_code=35)) == {35: 1}
    assert errors_in(ApiVersionsResponse()) == {}


def test_errors_of_partitions_are_counted_each_by_itself() -> None:
    topics = [
        TopicProduceResponse(partition_responses=[PartitionProduceResponse(error_code=LOST) for _ in range(3)]),
        TopicProduceResponse(partition_responses=[PartitionProduceResponse(), PartitionProduceResponse(error_code=2)]),
    ]
    assert errors_in(ProduceResponse(responses=topics)) == {3: 3, 2: 1}


def test_errors_of_all_levels_are_counted_together() -> None:
    partitions = [MetadataResponsePartition(error_code=5), MetadataResponsePartition(error_code=3)]
    topics = [MetadataResponseTopic(error_code=3, partitions=partitions)]
    assert errors_in(MetadataResponse(topics=topics)) == {3: 2, 5: 1}
    fetched = FetchResponse(error_code=70, responses=[FetchableTopicResponse(partitions=[PartitionData(error_code=1)])])
    assert errors_in(fetched) == {70: 1, 1: 1}


def test_codes_are_plain_numbers_whatever_the_handler_used() -> None:
    [code] = errors_in(ApiVersionsResponse(error_code=LOST))
    assert type(code) is int


@pytest.mark.parametrize("api", all_apis(), ids=lambda api: api.name)
def test_every_reply_can_be_looked_through(api: object) -> None:
    response = api.response()  # type: ignore[attr-defined]
    assert errors_in(response) == {}
    if "error_code" in type(response).schema.rows:
        assert errors_in(type(response)(error_code=7)) == {7: 1}
