"""What brokers say to prove the secret of their cluster: both sides, and what others can do with what they overhear."""

import pytest

from penstock.machines.broker_proof import ConnectingSide, Identity, ListeningSide, ProofError

SECRET = bytes(range(32))
ONE, OTHER = Identity(1, 17), Identity(2, 2**40)


def connecting(secret: bytes = SECRET, nonce: bytes = b"c" * 32) -> ConnectingSide:
    return ConnectingSide(secret, ONE, nonce)


def listening(secret: bytes = SECRET, nonce: bytes = b"l" * 32) -> ListeningSide:
    return ListeningSide(secret, OTHER, nonce)


def test_both_sides_learn_who_the_other_is() -> None:
    client, server = connecting(), listening()
    assert not server.has_challenged
    identity, proof = client.answer(server.challenge(client.hello))
    assert server.has_challenged
    assert identity == OTHER
    assert server.check(proof) == ONE


def test_the_secret_is_in_nothing_that_is_said() -> None:
    client, server = connecting(), listening()
    challenge = server.challenge(client.hello)
    _, proof = client.answer(challenge)
    assert SECRET not in client.hello + challenge + proof


def test_a_side_that_listens_without_the_secret_is_refused_before_it_gets_a_proof() -> None:
    client, server = connecting(), listening(secret=bytes(32))
    with pytest.raises(ProofError, match="does not know the secret"):
        client.answer(server.challenge(client.hello))


def test_a_side_that_connects_without_the_secret_is_refused() -> None:
    server, honest = listening(), connecting()
    server.challenge(honest.hello)
    _, proof = connecting(bytes(32)).answer(listening(bytes(32)).challenge(honest.hello))
    with pytest.raises(ProofError, match="does not know the secret"):
        server.check(proof)


def test_a_proof_that_was_overheard_is_refused_on_another_connection() -> None:
    client, server = connecting(), listening()
    _, proof = client.answer(server.challenge(client.hello))
    again = listening(nonce=b"L" * 32)
    again.challenge(client.hello)
    with pytest.raises(ProofError):
        again.check(proof)


def test_the_proof_of_the_listening_side_is_no_proof_of_the_connecting_one() -> None:
    client, server = connecting(), listening()
    challenge = server.challenge(client.hello)
    with pytest.raises(ProofError):
        server.check(challenge[-32:])


def test_who_a_broker_says_it_is_cannot_be_changed_on_the_way() -> None:
    client, server = connecting(), listening()
    forged = bytearray(client.hello)
    forged[4] = 9
    challenge = server.challenge(bytes(forged))
    with pytest.raises(ProofError):
        client.answer(challenge)
    for position in range(12):
        changed = bytearray(listening().challenge(client.hello))
        changed[position] ^= 1
        with pytest.raises(ProofError):
            client.answer(bytes(changed))


@pytest.mark.parametrize("hello", [b"", b"\x01", bytes(45), b"\x02" + bytes(44), b"\x01" + bytes(45)])
def test_a_hello_that_cannot_be_read_is_refused(hello: bytes) -> None:
    with pytest.raises(ProofError, match="a hello of"):
        listening().challenge(hello)


@pytest.mark.parametrize("proof", [b"", b"x", bytes(31), bytes(33), bytes(1000)])
def test_a_proof_or_a_challenge_of_another_length_is_refused(proof: bytes) -> None:
    client, server = connecting(), listening()
    server.challenge(client.hello)
    with pytest.raises(ProofError):
        server.check(proof)
    with pytest.raises(ProofError):
        client.answer(proof)
