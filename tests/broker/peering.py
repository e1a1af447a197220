"""Another broker of a running one's cluster: it knows the secret, and asks by the production code's peers."""

from collections.abc import Callable

from penstock.broker.network.peer import Address
from penstock.broker.network.peers import Peers
from penstock.machines.broker_proof import MECHANISM, ConnectingSide, Identity
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.harness import Client, Node

OTHER = Identity(7, 99)
NONCE = b"n" * 32


async def secret_of(node: Node) -> bytes:
    return node.shared.secret


async def peers_of(
    node: Node,
    *,
    own: Identity = OTHER,
    secret: bytes | None = None,
    may_reach: Callable[[int], bool] = lambda broker_id: True,
) -> Peers:
    """The connections of another broker, for which the running one is at the address where it is."""
    known = await secret_of(node)
    host, port = node.broker.address
    return Peers(
        secret=known if secret is None else secret,
        own=lambda: own,
        find=lambda _: Address(host, port, 1),
        may_reach=may_reach,
    )


async def prove(client: Client, secret: bytes, *, own: Identity = OTHER, nonce: bytes = NONCE) -> int:
    """Prove by hand that the client is a broker; returns the last error code."""
    assert (await client.ask(SaslHandshakeRequest(mechanism=MECHANISM), 1)).error_code == ErrorCode.NONE
    side = ConnectingSide(secret, own, nonce)
    challenge = await client.ask(SaslAuthenticateRequest(auth_bytes=side.hello), 2)
    assert challenge.error_code == ErrorCode.NONE
    _, proof = side.answer(challenge.auth_bytes)
    code: int = (await client.ask(SaslAuthenticateRequest(auth_bytes=proof), 2)).error_code
    return code
