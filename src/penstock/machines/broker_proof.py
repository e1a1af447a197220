"""Lets two brokers prove to each other that they know the secret of their cluster, which itself never travels.

    the one that connects    hello: format, who it is, a nonce
    the one that listens     challenge: who it is, a nonce, its proof
    the one that connects    its proof

A proof is the HMAC-SHA256, by the secret, of the side that makes it and of all that was said before. The nonces are
drawn for each connection, so a proof that was overheard is good for no other one; and neither side's proof can be sent
back as the other's.
"""

import hmac
from struct import Struct
from typing import Final, NamedTuple

MECHANISM: Final = "PENSTOCK-SECRET"
NONCE_BYTES: Final = 32
_FORMAT: Final = 1
_HELLO: Final = Struct(f">Biq{NONCE_BYTES}s")
_IDENTITY: Final = Struct(f">iq{NONCE_BYTES}s")
_PROOF_BYTES: Final = 32


class Identity(NamedTuple):
    """A broker, and the epoch of its registration."""

    node_id: int
    broker_epoch: int


class ProofError(Exception):
    """The other side has not proved that it knows the secret, or says what cannot be read."""


class ConnectingSide:
    """The side of the broker that connects. `nonce` must never have been used before."""

    def __init__(self, secret: bytes, own: Identity, nonce: bytes) -> None:
        self._secret = secret
        self.hello = _HELLO.pack(_FORMAT, *own, nonce)

    def answer(self, challenge: bytes) -> tuple[Identity, bytes]:
        """Returns who has answered, as it has proved, and the proof that it gets."""
        if len(challenge) != _IDENTITY.size + _PROOF_BYTES:
            raise ProofError(f"a challenge of {len(challenge)} bytes")
        said, proof = challenge[: _IDENTITY.size], challenge[_IDENTITY.size :]
        transcript = self.hello + said
        if not hmac.compare_digest(proof, _prove(self._secret, b"listens", transcript)):
            raise ProofError("the other side does not know the secret of this cluster")
        node_id, broker_epoch, _ = _IDENTITY.unpack(said)
        return Identity(node_id, broker_epoch), _prove(self._secret, b"connects", transcript)


class ListeningSide:
    """The side of the broker that listens, for one attempt. `nonce` must never have been used before."""

    def __init__(self, secret: bytes, own: Identity, nonce: bytes) -> None:
        self._secret = secret
        self._said = _IDENTITY.pack(*own, nonce)
        self._claimed: Identity | None = None
        self._expected = b""

    @property
    def has_challenged(self) -> bool:
        return self._claimed is not None

    def challenge(self, hello: bytes) -> bytes:
        """Returns what the other side is told."""
        if len(hello) != _HELLO.size or hello[0] != _FORMAT:
            raise ProofError(f"a hello of {len(hello)} bytes that is not in format {_FORMAT}")
        _, node_id, broker_epoch, _ = _HELLO.unpack(hello)
        transcript = hello + self._said
        self._claimed = Identity(node_id, broker_epoch)
        self._expected = _prove(self._secret, b"connects", transcript)
        return self._said + _prove(self._secret, b"listens", transcript)

    def check(self, proof: bytes) -> Identity:
        """Returns who the other side is, as it has proved."""
        assert self._claimed is not None, "the challenge comes first"
        if not hmac.compare_digest(proof, self._expected):
            raise ProofError("the other side does not know the secret of this cluster")
        return self._claimed


def _prove(secret: bytes, side: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, side + b" " + transcript, "sha256")
