"""The index of APIs, and their header versions against kio's."""

import pytest
from kio.index import load_request_schema, load_response_schema

from penstock.protocol.apis import API_VERSIONS, Api, all_apis, api
from penstock.protocol.schemas.groups import HeartbeatRequest, HeartbeatResponse
from tests.protocol.messages import versions_of


def test_there_are_tables_for_78_apis_each_with_a_key_of_its_own() -> None:
    apis = all_apis()
    assert len(apis) == 78
    assert len({each.key for each in apis}) == 78
    assert len({each.name for each in apis}) == 78


@pytest.mark.parametrize("each", all_apis(), ids=lambda each: each.name)
def test_an_api_is_found_by_its_key_and_its_messages_carry_its_key_and_name(each: Api) -> None:
    assert api(each.key) is each
    assert each.request.schema.key == each.response.schema.key == each.key
    assert each.request.__name__ == f"{each.name}Request"
    assert each.response.__name__ == f"{each.name}Response"


@pytest.mark.parametrize("each", all_apis(), ids=lambda each: each.name)
def test_a_response_has_the_versions_of_its_request(each: Api) -> None:
    assert each.response.schema.versions == each.request.schema.versions
    assert each.response.schema.flexible == each.request.schema.flexible


@pytest.mark.parametrize("each", all_apis(), ids=lambda each: each.name)
def test_the_headers_of_every_version_are_those_that_kio_names(each: Api) -> None:
    for version in versions_of(each.request):
        request_header = load_request_schema(each.key, version).__header_schema__
        response_header = load_response_schema(each.key, version).__header_schema__
        assert each.request_header_version(version) == request_header.__version__, f"v{version}"
        assert each.response_header_version(version) == response_header.__version__, f"v{version}"


def test_an_answer_to_api_versions_can_be_read_by_a_client_of_any_age() -> None:
    versions = api(API_VERSIONS)
    assert [versions.request_header_version(version) for version in (0, 2, 3, 4, 99)] == [1, 1, 2, 2, 2]
    assert [versions.response_header_version(version) for version in (0, 2, 3, 4, 99)] == [0, 0, 0, 0, 0]


def test_tables_are_imported_when_their_api_is_asked_for() -> None:
    heartbeat = api(12)
    assert (heartbeat.name, heartbeat.request, heartbeat.response) == ("Heartbeat", HeartbeatRequest, HeartbeatResponse)


@pytest.mark.parametrize("key", [-1, 4, 7, 52, 9999])
def test_a_key_without_tables_is_a_key_error(key: int) -> None:
    with pytest.raises(KeyError):
        api(key)
