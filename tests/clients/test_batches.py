"""What real clients sent, captured by `make fixtures`: their record batches, and their requests as whole frames."""

import json

import pytest

from penstock.protocol.apis import api
from penstock.protocol.batch import check_produced, split, verify
from penstock.protocol.codec import encode
from penstock.protocol.compression import Codec
from penstock.protocol.records import iterate
from penstock.protocol.schemas.headers import RequestHeader
from penstock.protocol.schemas.produce import ProduceRequest
from penstock.protocol.session import Request, read_request
from tools.clients.client import Client
from tools.clients.records import TOPICS, canonical_records, load, without_offset
from tools.fixtures.capture import BATCHES, CLIENTS, FRAMES, RECORDS, VERSIONS

FRAME_NAMES = sorted(path.stem for path in FRAMES.glob("*.bin"))
XERIAL_MAGIC = b"\x82SNAPPY\x00"


class TestBatches:
    def test_there_is_one_of_every_client_and_codec(self) -> None:
        names = {f"{client.name}-{topic}.bin" for client in CLIENTS for topic in TOPICS}

        assert {path.name for path in BATCHES.glob("*.bin")} == names
        assert json.loads(VERSIONS.read_text()).keys() == {client.name for client in CLIENTS}
        assert load(RECORDS) == canonical_records()

    @pytest.mark.parametrize("codec", Codec)
    @pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
    def test_every_batch_decodes_to_the_same_records(self, client: Client, codec: Codec) -> None:
        captured = (BATCHES / f"{client.name}-{codec.name.lower()}.bin").read_bytes()

        [(header, batch)] = split(captured)
        verify(header, batch)
        check_produced(header)
        records = list(iterate(batch))

        assert header.codec is codec
        assert [without_offset(record) for record in records] == client.sends(canonical_records())
        assert [record.offset for record in records] == list(range(header.record_count))
        assert header.max_timestamp == max(record.timestamp for record in records)

    def test_snappy_came_both_raw_and_framed(self) -> None:
        framed = {
            client.name: XERIAL_MAGIC in (BATCHES / f"{client.name}-snappy.bin").read_bytes() for client in CLIENTS
        }

        assert framed == {
            "confluent-kafka": False,
            "kafka-python": True,
            "aiokafka": True,
            "kafkajs": False,
            "java": True,
        }


class TestFrames:
    @pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
    def test_there_are_some_of_every_client(self, client: Client) -> None:
        apis = {
            name.removeprefix(f"{client.name}-").split("-")[0] for name in FRAME_NAMES if name.startswith(client.name)
        }

        assert {"ApiVersions", "Metadata", "Produce"} <= apis

    @pytest.mark.parametrize("name", FRAME_NAMES)
    def test_every_request_encodes_to_the_bytes_that_it_was_decoded_from(self, name: str) -> None:
        captured = (FRAMES / f"{name}.bin").read_bytes()

        request = read_request(memoryview(captured), Request)
        message = request.decode()
        header = RequestHeader(
            request_api_key=request.api.key,
            request_api_version=request.version,
            correlation_id=request.correlation_id,
            client_id=request.client_id,
        )
        header_version = request.api.request_header_version(request.version)

        assert name.endswith(f"-{request.api.name}-v{request.version}")
        assert request.client_id is not None
        assert name.startswith(f"{request.client_id}-")
        assert encode(header, header_version) + encode(message, request.version) == captured

    @pytest.mark.parametrize("name", [name for name in FRAME_NAMES if f"-{api(0).name}-" in name])
    def test_the_records_of_a_produce_request_are_a_view_of_its_frame(self, name: str) -> None:
        captured = (FRAMES / f"{name}.bin").read_bytes()

        message = read_request(memoryview(captured), Request).decode()

        assert isinstance(message, ProduceRequest)
        records = message.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is captured
        [(header, batch)] = split(records)
        verify(header, batch)
