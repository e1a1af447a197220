"""TLS and SASL as Apache Kafka has them: every listener, every mechanism, and what it says to the wrong ones."""

import asyncio

import pytest

from penstock.client.admin.topics import NewTopic, create_topics
from penstock.client.cluster.cluster import Cluster
from penstock.client.cluster.connection import Connection
from penstock.client.cluster.security import Security
from penstock.client.errors import AuthenticationError, BadReplyError, ClientError, ConnectionLostError, unwrap
from penstock.client.metadata import Address
from penstock.client.plain.fetch import fetch
from penstock.protocol.records import NewRecord
from penstock.protocol.schemas.metadata import MetadataRequest
from tests.client.one_batch import produce
from tests.client.secured import STRANGER
from tests.kafka.server import USERS, Kafka
from tests.waiting import in_loop

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ALL = pytest.mark.parametrize("mechanism", MECHANISMS)


def secured(protocol: str, **settings: object) -> Security:
    """From settings, with underscores for dots."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    security = Security.from_properties({"security.protocol": protocol, **given})
    assert security is not None
    return security


def alice(mechanism: str) -> dict[str, object]:
    return {"sasl_mechanism": mechanism, "sasl_username": "alice", "sasl_password": USERS["alice"]}


async def round_trip(bootstrap: str, security: Security, topic: str) -> None:
    """Make a topic, write a record larger than one piece of TLS, and read it."""
    value = b"one two three" * 10_000
    async with Cluster(bootstrap, security=security) as cluster:
        unwrap(await create_topics(cluster, [NewTopic(name=topic, partitions=1)]))
        assert await produce(cluster, topic, 0, [NewRecord(value=value)]) == 0
        fetched = await fetch(cluster, topic, 0, 0)
        assert [record.value for record in fetched.records()] == [value]


async def open_once(bootstrap: str, security: Security | None) -> None:
    connection = await Connection.open(*Address.parse(bootstrap), security=security)
    try:
        await connection.request(MetadataRequest())
    finally:
        await connection.close()


@in_loop
async def test_records_go_over_ssl(kafka: Kafka) -> None:
    await round_trip(kafka.ssl, secured("SSL", ssl_ca_location=kafka.ca), "over-ssl")


@in_loop
async def test_records_go_over_ssl_with_a_certificate_of_the_client(kafka: Kafka) -> None:
    security = secured(
        "SSL", ssl_ca_location=kafka.ca, ssl_certificate_location=kafka.certificate, ssl_key_location=kafka.key
    )
    await round_trip(kafka.mutual, security, "over-mutual")


@ALL
@in_loop
async def test_records_go_over_sasl_plaintext(kafka: Kafka, mechanism: str) -> None:
    await round_trip(kafka.sasl_plaintext, secured("SASL_PLAINTEXT", **alice(mechanism)), f"plaintext-{mechanism}")


@ALL
@in_loop
async def test_records_go_over_sasl_ssl(kafka: Kafka, mechanism: str) -> None:
    security = secured("SASL_SSL", ssl_ca_location=kafka.ca, **alice(mechanism))
    await round_trip(kafka.sasl_ssl, security, f"ssl-{mechanism}")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@in_loop
async def test_names_and_passwords_with_unusual_characters_are_understood(kafka: Kafka, mechanism: str) -> None:
    for username, password in USERS.items():
        security = secured("SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_username=username, sasl_password=password)
        await open_once(kafka.sasl_plaintext, security)


@ALL
@in_loop
async def test_a_wrong_password_is_refused(kafka: Kafka, mechanism: str) -> None:
    security = secured("SASL_PLAINTEXT", **{**alice(mechanism), "sasl_password": "looking-glass"})
    async with Cluster(kafka.sasl_plaintext, security=security) as cluster:
        with pytest.raises(AuthenticationError, match=r"'alice' by .*check sasl\.username") as caught:
            await cluster.all_topics()
    assert "looking-glass" not in str(caught.value)


@ALL
@in_loop
async def test_a_session_is_renewed_on_the_same_connection(kafka: Kafka, mechanism: str) -> None:
    """Kafka hangs up on the first request after its end."""
    connection = await Connection.open(
        *Address.parse(kafka.short), security=secured("SASL_PLAINTEXT", **alice(mechanism))
    )
    dues = {connection._authenticate_at}
    while len(dues) < 3:
        await asyncio.gather(*(connection.request(MetadataRequest(topics=())) for _ in range(5)))
        dues.add(connection._authenticate_at)
    assert None not in dues
    await connection.close()


@in_loop
async def test_a_broker_that_we_have_no_reason_to_trust_is_refused(kafka: Kafka) -> None:
    stranger = STRANGER.cert_pem.bytes().decode()
    with pytest.raises(AuthenticationError, match=r"ssl\.ca\.location"):
        await open_once(kafka.ssl, secured("SSL", ssl_truststore_certificates=stranger))
    with pytest.raises(AuthenticationError, match=r"ssl\.ca\.location"):
        await open_once(kafka.ssl, secured("SSL"))


@in_loop
async def test_a_port_that_wants_a_certificate_of_ours_says_so(kafka: Kafka) -> None:
    with pytest.raises(ClientError, match=r"ssl\.certificate\.location"):
        await open_once(kafka.mutual, secured("SSL", ssl_ca_location=kafka.ca))


@in_loop
async def test_the_wrong_protocol_for_a_port_is_told(kafka: Kafka) -> None:
    tls = secured("SSL", ssl_ca_location=kafka.ca)
    with pytest.raises((ConnectionLostError, BadReplyError), match=r"TLS.*security\.protocol"):
        await open_once(kafka.plaintext, tls)
    with pytest.raises((ConnectionLostError, BadReplyError), match=r"TLS.*security\.protocol"):
        await open_once(kafka.ssl, None)
    with pytest.raises(AuthenticationError, match=r"security\.protocol to PLAINTEXT or SSL"):
        await open_once(kafka.plaintext, secured("SASL_PLAINTEXT", **alice("PLAIN")))
    with pytest.raises(ConnectionLostError, match=r"wants a password, set security\.protocol"):
        await open_once(kafka.sasl_plaintext, None)
