"""Keys and places of records, as `records.iterate` has them."""

import random

import pytest

from penstock.protocol.batch import HEADER, read_header
from penstock.protocol.compression import Codec
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import NewRecord, build, iterate
from penstock.storage.compaction.record_spans import LONGEST_KEY, Keys, digest, read_keys, read_spans, unpack


def keys_of(batch: bytes, start: int = 0) -> Keys:
    header = read_header(batch, start)
    return read_keys(header, *unpack(header, batch, start))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("seed", range(20))
def test_keys_and_spans_are_those_of_the_records(seed: int, codec: Codec) -> None:
    rng = random.Random(seed)
    lengths = [0, 1, 5, 40, 41, 63, 64, 200, 20_000]
    records = [
        NewRecord(
            key=None if rng.random() < 0.1 else rng.randbytes(rng.choice(lengths)),
            value=None if rng.random() < 0.3 else rng.randbytes(rng.choice(lengths)),
            headers=[("h" * rng.choice([1, 100]), None)] if rng.random() < 0.2 else [],
            timestamp=1_700_000_000_000 + rng.choice([0, 50, -50, 5000, -5000, 10_000_000]),
        )
        for _ in range(rng.choice([1, 3, 150]))
    ]
    deltas = sorted(rng.sample(range(70_000), len(records)))
    batch = bytes(build(records, base_offset=500, offset_deltas=deltas, last_offset_delta=80_000, codec=codec))
    header = read_header(batch)
    expected = list(iterate(batch))
    # Somewhere among other bytes.
    data, position, end = unpack(header, b"before" + batch + b"behind", 6)
    keys = read_keys(header, data, position, end)
    assert keys.keys == [None if record.key is None else digest(record.key) for record in expected]
    assert keys.offsets == [record.offset for record in expected]
    assert keys.tombstones == [record.offset for record in expected if record.value is None and record.key is not None]
    spans = read_spans(header, data, position)
    assert [span[0] for span in spans] == keys.offsets
    assert [header.base_timestamp + span[3] for span in spans] == [record.timestamp for record in expected]
    assert [spans[0][1], *(span[2] for span in spans)] == [*(span[1] for span in spans), end]


def test_short_keys_stand_for_themselves_and_no_digest_is_a_short_key() -> None:
    assert digest(b"k" * LONGEST_KEY) == b"k" * LONGEST_KEY
    long = digest(b"k" * (LONGEST_KEY + 1))
    assert len(long) == LONGEST_KEY + 1
    assert long != digest(b"j" * (LONGEST_KEY + 1))


@pytest.mark.parametrize("seed", range(200))
def test_damage_is_noticed_or_leads_to_keys_but_to_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    batch = build([NewRecord(key=b"key %d" % n, value=b"value") for n in range(5)])
    for _ in range(rng.choice([1, 3])):
        batch[rng.randrange(HEADER.size, len(batch))] = rng.randrange(256)
    if rng.random() < 0.3:
        batch[57:61] = rng.choice([0, 4, 6, 1000]).to_bytes(4, "big")
    try:
        keys = keys_of(bytes(batch))
    except DecodeError:
        return
    assert keys.offsets == sorted(set(keys.offsets))
    assert all(0 <= offset <= 4 for offset in keys.offsets)


def test_an_unknown_codec_is_unreadable() -> None:
    batch = build([NewRecord(key=b"k", value=b"v")])
    batch[22] |= 7
    with pytest.raises(DecodeError, match="codec"):
        keys_of(bytes(batch))
