"""Proving over the wire to be a broker: who is believed, who is not, and that clients are left alone."""

import pytest

from penstock.machines.broker_proof import MECHANISM, ConnectingSide
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.replication import EnvelopeRequest
from penstock.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from penstock.protocol.schemas.versions import ApiVersionsRequest
from tests.broker.harness import Client, in_loop, running
from tests.broker.peering import NONCE, OTHER, prove, secret_of

BROKERS_ONLY = {56, 58, 63, 67}


async def offered(client: Client) -> set[int]:
    return {item.api_key for item in (await client.ask(ApiVersionsRequest(), 0)).api_keys}


@in_loop
async def test_a_broker_that_proves_the_secret_is_offered_what_is_for_brokers() -> None:
    async with running() as node:
        client = await node.connect()
        before = await offered(client)
        assert await prove(client, await secret_of(node)) == ErrorCode.NONE
        assert await offered(client) - before == BROKERS_ONLY
        [connection] = node.broker.listener.connections
        assert connection.broker == OTHER


@in_loop
async def test_a_client_without_the_proof_gets_no_api_that_is_for_brokers() -> None:
    async with running() as node:
        client = await node.connect()
        assert not await offered(client) & BROKERS_ONLY
        client.send(EnvelopeRequest(), 0)
        assert await client.closed() == b""
        assert "Envelope is not offered" in node.broker.listener.aborted


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "", "penstock-secret"])
def test_any_other_mechanism_is_refused_with_the_list_of_those_that_there_are(mechanism: str) -> None:
    @in_loop
    async def run() -> None:
        async with running() as node:
            response = await (await node.connect()).ask(SaslHandshakeRequest(mechanism=mechanism), 1)
            assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert list(response.mechanisms) == [MECHANISM]

    run()


@in_loop
async def test_a_wrong_secret_is_refused() -> None:
    async with running() as node:
        client = await node.connect()
        await client.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        await client.ask(SaslAuthenticateRequest(auth_bytes=ConnectingSide(bytes(32), OTHER, NONCE).hello), 2)
        refused = await client.ask(SaslAuthenticateRequest(auth_bytes=bytes(32)), 2)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert refused.error_message
        assert not await offered(client) & BROKERS_ONLY


@in_loop
async def test_a_proof_that_was_overheard_is_refused_when_it_is_replayed() -> None:
    async with running() as node:
        secret = await secret_of(node)
        honest, thief = await node.connect(), await node.connect()
        side = ConnectingSide(secret, OTHER, NONCE)
        for client in (honest, thief):
            await client.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        challenge = await honest.ask(SaslAuthenticateRequest(auth_bytes=side.hello), 2)
        await thief.ask(SaslAuthenticateRequest(auth_bytes=side.hello), 2)
        _, overheard = side.answer(challenge.auth_bytes)
        assert (await honest.ask(SaslAuthenticateRequest(auth_bytes=overheard), 2)).error_code == ErrorCode.NONE
        refused = await thief.ask(SaslAuthenticateRequest(auth_bytes=overheard), 2)
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not await offered(thief) & BROKERS_ONLY


@in_loop
async def test_a_challenge_can_be_answered_once() -> None:
    async with running() as node:
        client = await node.connect()
        side = ConnectingSide(await secret_of(node), OTHER, NONCE)
        await client.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        challenge = await client.ask(SaslAuthenticateRequest(auth_bytes=side.hello), 2)
        await client.ask(SaslAuthenticateRequest(auth_bytes=bytes(32)), 2)
        _, right = side.answer(challenge.auth_bytes)
        late = await client.ask(SaslAuthenticateRequest(auth_bytes=right), 2)
        assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE


@in_loop
async def test_authentication_without_a_handshake_and_a_second_handshake_are_refused() -> None:
    async with running() as node:
        client = await node.connect()
        response = await client.ask(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await prove(client, await secret_of(node)) == ErrorCode.NONE
        again = await client.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        once_more = await client.ask(SaslAuthenticateRequest(auth_bytes=bytes(32)), 2)
        assert once_more.error_code == ErrorCode.ILLEGAL_SASL_STATE


@in_loop
async def test_a_hello_that_cannot_be_read_is_refused() -> None:
    async with running() as node:
        client = await node.connect()
        await client.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        response = await client.ask(SaslAuthenticateRequest(auth_bytes=b"what"), 2)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@in_loop
async def test_brokers_prove_themselves_on_their_own_listener_alone() -> None:
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    async with running(configs) as node:
        outside = await node.connect()
        response = await outside.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        inside = await Client.open(node.broker.services.addresses["INTERNAL"])
        node.clients.append(inside)
        assert await prove(inside, await secret_of(node)) == ErrorCode.NONE
