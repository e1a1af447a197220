"""Walking records without making them: the same verdict as reading them, and a name for the one that is wrong."""

import random

import pytest

from penstock.protocol.batch import HEADER, read_header, stamp_crc
from penstock.protocol.compression import Codec
from penstock.protocol.errors import DecodeError
from penstock.protocol.record_checks import MAX_NAMED, Findings, check_records, payload
from penstock.protocol.records import NewRecord, build, iterate
from penstock.protocol.varint import varint
from tests.hostile.poison import KINDS, good, sealed


def examine(batch: bytes | bytearray) -> Findings:
    header = read_header(batch)
    return check_records(header, payload(header, batch))


def random_batch(chance: random.Random) -> bytearray:
    def some_bytes(largest: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 1, 5, largest)))

    records = [
        NewRecord(
            some_bytes(chance.choice((70, 9_000, 20_000))),
            key=some_bytes(100),
            headers=[
                (chance.choice(("", "é", "a" * 200)), some_bytes(130)) for _ in range(chance.choice((0, 0, 1, 70)))
            ],
            timestamp=chance.choice((-1, 0, 63, 1_700_000_000_000, 1_700_000_000_000 + number * 100, 2**62)),
        )
        for number in range(chance.choice((1, 2, 70, 300)))
    ]
    return build(records, codec=chance.choice(list(Codec)))


def reads(batch: bytes | bytearray) -> bool:
    """Whether the reader of records gets to the end, and finds each at the offset that a producer gives it."""
    try:
        offsets = [record.offset for record in iterate(batch)]
    except DecodeError:
        return False
    return offsets == list(range(len(offsets)))


@pytest.mark.parametrize("seed", range(60))
def test_what_can_be_read_passes(seed: int) -> None:
    chance = random.Random(seed)
    batch = random_batch(chance)
    found = examine(batch)
    keyless = [number for number, record in enumerate(iterate(batch)) if record.key is None]
    assert (found.damage, found.damaged_index, found.keyless_count) == (None, -1, len(keyless)), seed
    assert found.keyless == keyless[:MAX_NAMED], seed


@pytest.mark.parametrize("seed", range(150))
def test_what_was_changed_passes_exactly_if_it_can_still_be_read(seed: int) -> None:
    chance = random.Random(seed)
    batch = build(
        [
            NewRecord(
                chance.randbytes(chance.randint(0, 20)),
                key=None if chance.random() < 0.3 else b"k" * chance.randint(0, 5),
                headers=[("h", b"v"), ("null", None)][: chance.randint(0, 2)],
                timestamp=1_000 + chance.randint(0, 100),
            )
            for _ in range(chance.randint(1, 8))
        ]
    )
    for _ in range(100):
        changed = bytearray(batch)
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(HEADER.size, len(changed))] = chance.choice(
                (0, 1, 2, 127, 128, 255, chance.randrange(256))
            )
        stamp_crc(changed)
        assert (examine(changed).damage is None) == reads(changed), (seed, changed.hex())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_poison_is_found(kind: str) -> None:
    batch = KINDS[kind]()
    try:
        found = examine(batch)
    except DecodeError:
        # Its data cannot be decompressed, or becomes too much.
        assert kind.startswith("broken") or "bomb" in kind
    else:
        assert found.damage is not None


def test_the_record_that_is_wrong_is_named() -> None:
    records = [bytes(build([NewRecord(b"x")]))[HEADER.size :]] * 2
    assert examine(sealed(b"".join(records), count=2)) == Findings("its offset delta is 0, not 1", 1)
    assert examine(sealed(good([b"a", b"b"])[HEADER.size :], count=3)).damaged_index == 2
    assert examine(sealed(good([b"a", b"b"])[HEADER.size :], count=1)) == Findings(
        "8 bytes follow the last of its 1 records"
    )
    assert examine(sealed(varint(20) + bytes(3), count=1)).damage == "its length does not fit the 3 bytes that remain"


def test_a_timestamp_beyond_64_bits_is_damage() -> None:
    batch = build([NewRecord(b"a", timestamp=5), NewRecord(b"b", timestamp=6)])
    header = read_header(batch)._replace(base_timestamp=2**63 - 1)
    assert check_records(header, payload(header, batch)).damaged_index == 1


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_a_count_below_one_is_found_by_the_bytes_that_are_there(count: int) -> None:
    batch = build([NewRecord(b"value")])
    header = read_header(batch)._replace(record_count=count)
    assert check_records(header, payload(header, batch)).damage is not None
