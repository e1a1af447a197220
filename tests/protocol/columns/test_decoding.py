"""Decoding: equal to `records.iterate` on batches of every kind, whole or damaged, in both implementations."""

import random
import tracemalloc
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import pytest

from penstock.protocol.batch import CODEC_BITS, HEADER, BatchHeader, read_header, split, stamp, stamp_crc
from penstock.protocol.columns import ALL_COLUMNS, Impl, decode, decode_pieces, kernels_numpy
from penstock.protocol.compression import Codec, compress
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import NewRecord, Record, build, iterate
from penstock.protocol.varint import varint, varlong
from tests.hostile import poison
from tests.protocol.columns.samples import (
    IMPLEMENTATIONS,
    NOW,
    expected,
    make_field,
    make_records,
    records,
    sequence_of,
    size_of,
)
from tests.protocol.test_records import RECORDS, assemble, mutate, raw_record

pytestmark = pytest.mark.parametrize("impl", IMPLEMENTATIONS)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """NumPy takes the headers of so few records one by one, those of more together; both ways shall be gone."""
    return lambda number: monkeypatch.setattr(kernels_numpy, "_FEW_HEADERS", number)


@lru_cache(maxsize=1)
def large_batches(codec: Codec) -> tuple[bytes, list[Record]]:
    """Made once for all implementations, and what iterating gives."""
    chance = random.Random(codec)
    many = [NewRecord(b"v" * chance.choice((5, 6, 100)), timestamp=NOW + at) for at in range(30_000)]
    same = [NewRecord(b"v" * 90, key=b"k", timestamp=NOW + at // 100) for at in range(30_000)]
    data = bytes(build(many, codec=codec)) + bytes(build(same, codec=codec, base_offset=30_000))
    return data, [record for _, record in expected(data)]


class TestEquality:
    @pytest.mark.parametrize("seed", range(100))
    def test_every_column_is_what_iterating_gives(self, impl: Impl, seed: int, few: Callable[[int], None]) -> None:
        chance = random.Random(seed)
        few(chance.choice((0, 3, 100)))
        data = make_field(chance)
        skip_control = chance.random() < 0.5
        wanted = expected(data, skip_control=skip_control)
        columns = decode(data, columns=ALL_COLUMNS, skip_control=skip_control, impl=impl)

        assert records(columns) == [record for _, record in wanted], f"seed {seed}"
        assert columns.count == len(wanted)
        assert columns.next_offset == split(data)[-1][0].next_offset
        fields: dict[str, list[Any]] = {
            "timestamp_type": [int(header.is_log_append_time) for header, _ in wanted],
            "size": [size_of(record) for _, record in wanted],
            "crc": [header.crc for header, _ in wanted],
            "producer_id": [header.producer_id for header, _ in wanted],
            "producer_epoch": [header.producer_epoch for header, _ in wanted],
            "sequence": [sequence_of(header, record) for header, record in wanted],
            "leader_epoch": [header.leader_epoch for header, _ in wanted],
        }
        for name, values in fields.items():
            assert getattr(columns, name).tolist() == values, f"seed {seed}: {name}"

    @pytest.mark.parametrize("seed", range(60))
    def test_records_below_the_start_offset_are_left_out(self, impl: Impl, seed: int) -> None:
        chance = random.Random(seed)
        data = make_field(chance)
        first, last = split(data)[0][0].base_offset, split(data)[-1][0].next_offset
        start = chance.randint(first, last)
        wanted = expected(data, start_offset=start)
        columns = decode(data, columns=ALL_COLUMNS, start_offset=start, impl=impl)

        assert records(columns) == [record for _, record in wanted], f"seed {seed}, start {start}"
        assert columns.sequence is not None
        assert columns.sequence.tolist() == [sequence_of(*each) for each in wanted]
        assert columns.size is not None
        assert columns.size.tolist() == [size_of(record) for _, record in wanted]
        assert columns.next_offset == last

    @pytest.mark.parametrize("codec", Codec)
    def test_large_batches_of_records_of_one_length_and_of_many(self, impl: Impl, codec: Codec) -> None:
        data, wanted = large_batches(codec)

        assert records(decode(data, impl=impl)) == wanted

    def test_a_length_written_longer_than_need_be_is_read(self, impl: Impl) -> None:
        """Kafka reads such numbers, and a run of records that are equal only in the first byte is no run."""
        body = raw_record()[1:]
        padded = b"\x8c\x00"
        assert len(body) == 6
        payload = b"".join(
            (padded if at % 3 else b"\x8c\x80\x00") + body[:2] + varint(at) + body[3:] for at in range(60)
        )
        data = bytes(assemble(payload, 60))

        assert records(decode(data, impl=impl)) == list(iterate(data))

    def test_only_the_columns_asked_for_are_made(self, impl: Impl) -> None:
        columns = decode(build(RECORDS), columns=["offset", "crc"], impl=impl)

        assert {name for name in ALL_COLUMNS if getattr(columns, name) is not None} == {"offset", "crc"}
        with pytest.raises(ValueError, match="no column 'colour'"):
            decode(build(RECORDS), columns=["colour"], impl=impl)

    def test_no_batches_are_no_records(self, impl: Impl) -> None:
        columns = decode(b"", columns=ALL_COLUMNS, start_offset=17, impl=impl)

        assert records(columns) == []
        assert columns.next_offset == 17

    def test_every_kind_of_buffer_is_decoded_and_may_be_overwritten_after(self, impl: Impl) -> None:
        batch = build(RECORDS)
        for view in (bytes(batch), batch, memoryview(batch), memoryview(b"xx" + batch)[2:]):
            assert records(decode(view, impl=impl)) == list(iterate(batch))
        columns = decode(batch, impl=impl)
        wanted = list(iterate(batch))
        batch[:] = bytes(len(batch))

        assert records(columns) == wanted

    @pytest.mark.parametrize("timestamps", [[2**63 - 1, -1], [-(2**63), -1], [2**63 - 1, 2**63 - 70]])
    def test_timestamps_at_the_edge_of_64_bits_survive(self, impl: Impl, timestamps: list[int]) -> None:
        columns = decode(build([NewRecord(b"", timestamp=timestamp) for timestamp in timestamps]), impl=impl)

        assert columns.timestamp is not None
        assert columns.timestamp.tolist() == timestamps


class TestPieces:
    @pytest.mark.parametrize("piece_bytes", [1, 300, 5000, 1 << 20])
    def test_pieces_hold_together_what_the_whole_holds(self, impl: Impl, piece_bytes: int) -> None:
        data = b"".join(bytes(build(make_records(random.Random(at), 9), base_offset=at * 10)) for at in range(30))
        pieces = list(decode_pieces(data, impl=impl, piece_bytes=piece_bytes))
        whole = records(decode(data, impl=impl))

        assert [record for piece in pieces for record in records(piece)] == whole
        assert pieces[-1].next_offset == split(data)[-1][0].next_offset
        ends = [0, *(piece.next_offset for piece in pieces)]
        for piece, start, end in zip(pieces, ends[:-1], ends[1:], strict=True):
            assert all(start <= record.offset < end for record in records(piece))
        assert piece_bytes > 1 or len(pieces) == 30

    def test_batches_that_decompress_to_much_take_the_memory_of_one_piece_at_a_time(self, impl: Impl) -> None:
        batch = bytes(build([NewRecord(bytes(4_000_000))], codec=Codec.ZSTD))
        data = batch * 20
        tracemalloc.start()
        try:
            sizes = [piece.count for piece in decode_pieces(data, impl=impl, piece_bytes=4_100_000)]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert sizes == [1] * 20
        assert peak < 32_000_000

    def test_a_batch_decompresses_to_the_limit_and_not_beyond(self, impl: Impl) -> None:
        batch = build(RECORDS, codec=Codec.ZSTD)
        size = len(build(RECORDS)) - HEADER.size
        (piece,) = decode_pieces(batch, impl=impl, max_decompressed_bytes=size)

        assert records(piece) == list(iterate(batch))
        with pytest.raises(DecodeError, match=f"more than {size - 1} bytes"):
            list(decode_pieces(batch, impl=impl, max_decompressed_bytes=size - 1))


class TestTransactions:
    """Batches of producers 1 and 2, as one sees them who reads committed records only."""

    @staticmethod
    def batch(offset: int, producer_id: int, *, transactional: bool = True) -> bytes:
        new = [NewRecord(b"%d" % producer_id, timestamp=NOW)] * 2
        options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        return bytes(build(new, base_offset=offset, transactional=transactional, **options))

    @staticmethod
    def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
        options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "coordinator_epoch": 0}
        return bytes(build_end_marker(kind, timestamp=NOW, base_offset=offset, **options))

    def offsets(self, data: bytes, impl: Impl, **options: Any) -> list[int]:
        offset = decode(data, impl=impl, columns=["offset"], **options).offset
        assert offset is not None
        return list(map(int, offset))

    def test_an_aborted_transaction_is_left_out_up_to_its_marker(self, impl: Impl) -> None:
        data = b"".join(
            [
                self.batch(0, 1),
                self.batch(2, 2),
                self.batch(4, 1),
                self.marker(6, 1, ControlType.ABORT),
                self.batch(7, 1),
                self.marker(9, 2, ControlType.COMMIT),
                self.marker(10, 1, ControlType.COMMIT),
            ]
        )

        assert self.offsets(data, impl) == [0, 1, 2, 3, 4, 5, 7, 8]
        assert self.offsets(data, impl, aborted=[(1, 0)]) == [2, 3, 7, 8]
        assert self.offsets(data, impl, aborted=[(1, 4)]) == [0, 1, 2, 3, 7, 8]
        assert self.offsets(data, impl, aborted=[(1, 0)], skip_control=False) == [2, 3, 6, 7, 8, 9, 10]
        assert decode(data, impl=impl, aborted=[(1, 0)]).next_offset == 11

    def test_the_list_may_be_in_any_order_and_name_a_producer_again(self, impl: Impl) -> None:
        data = b"".join(
            [
                self.batch(0, 1),
                self.marker(2, 1, ControlType.ABORT),
                self.batch(3, 2),
                self.batch(5, 1),
                self.marker(7, 2, ControlType.ABORT),
                self.marker(8, 1, ControlType.ABORT),
                self.batch(9, 1),
            ]
        )

        assert self.offsets(data, impl, aborted=[(1, 5), (2, 3), (1, 0)]) == [9, 10]

    def test_what_a_producer_wrote_outside_of_transactions_stays(self, impl: Impl) -> None:
        data = self.batch(0, 1, transactional=False) + self.batch(2, 1)

        assert self.offsets(data, impl, aborted=[(1, 0)]) == [0, 1]

    def test_a_commit_marker_does_not_end_an_abort(self, impl: Impl) -> None:
        data = self.batch(0, 1) + self.marker(2, 1, ControlType.COMMIT) + self.batch(3, 1)

        assert self.offsets(data, impl, aborted=[(1, 0)]) == []

    def test_a_transaction_that_began_before_the_start_offset_is_left_out(self, impl: Impl) -> None:
        data = self.batch(4, 1) + self.marker(6, 1, ControlType.ABORT) + self.batch(7, 1)

        assert self.offsets(data, impl, aborted=[(1, 0)], start_offset=5) == [7, 8]


def outcome(data: bytes, impl: Impl) -> list[Record] | None:
    try:
        return records(decode(data, impl=impl))
    except DecodeError:
        return None


def squeeze(batch: bytearray, codec: Codec) -> bytearray:
    """The batch compressed, whatever is in it."""
    header = read_header(batch)
    if codec is Codec.NONE or header.attributes & CODEC_BITS:
        return batch
    payload = compress(codec, batch[HEADER.size :])
    header = header._replace(attributes=header.attributes | codec, batch_length=len(payload) + HEADER.size - 12)
    squeezed = bytearray(HEADER.pack(*header) + payload)
    stamp_crc(squeezed)
    return squeezed


class TestDamage:
    @pytest.mark.parametrize("codec", Codec)
    @pytest.mark.parametrize("seed", range(3))
    def test_mutated_batches_are_refused_when_iterating_refuses_them(
        self, impl: Impl, codec: Codec, seed: int, few: Callable[[int], None]
    ) -> None:
        chance = random.Random(f"{codec}-{seed}")
        equal = [NewRecord(b"v" * 20, timestamp=NOW)] * 60
        originals = [build(RECORDS[:count]) for count in (1, 3, 7, 8)]
        originals += [build(equal), build(make_records(chance, 30))]
        outcomes = {"records": 0, "error": 0}
        for case in range(600):
            few(chance.choice((0, 100)))
            original = chance.choice(originals)
            is_before = chance.random() < 0.7
            batch = squeeze(mutate(chance, original), codec) if is_before else mutate(chance, squeeze(original, codec))
            # What follows a batch must not be read as if it were part of it.
            data = bytes(batch) + (bytes(originals[0]) if chance.random() < 0.5 else b"")
            try:
                wanted = [record for _, record in expected(data)]
            except DecodeError:
                outcomes["error"] += 1
                assert outcome(data, impl) is None, f"seed {seed}, case {case}: {data.hex()}"
            else:
                outcomes["records"] += 1
                assert outcome(data, impl) == wanted, f"seed {seed}, case {case}: {data.hex()}"

        assert min(outcomes.values()) > 20, f"seed {seed}: {outcomes}"

    def test_a_payload_cut_anywhere_is_refused_though_another_batch_follows(self, impl: Impl) -> None:
        batch = build(RECORDS[:7])
        header = read_header(batch)
        for length in range(HEADER.size, len(batch)):
            cut = batch[:length]
            HEADER.pack_into(cut, 0, *header._replace(batch_length=length - 12))
            stamp_crc(cut)
            with pytest.raises(DecodeError):
                decode(cut + batch, impl=impl)

    @pytest.mark.parametrize("length", [0, 1, 60])
    def test_a_batch_that_is_not_whole_is_refused(self, impl: Impl, length: int) -> None:
        batch = build(RECORDS)

        with pytest.raises(DecodeError):
            decode(batch + batch[: len(batch) - 61 + length], impl=impl)

    def test_a_checksum_is_checked_unless_it_was(self, impl: Impl) -> None:
        batch = build([NewRecord(b"value")])
        batch[-2] ^= 1

        with pytest.raises(DecodeError, match="CRC32C"):
            decode(batch, impl=impl)
        assert records(decode(batch, is_verified=True, impl=impl)) == list(iterate(batch))

    @pytest.mark.parametrize("codec", Codec)
    def test_a_count_of_two_billion_costs_nothing(self, impl: Impl, codec: Codec) -> None:
        batch = assemble(compress(codec, raw_record()), 2**31 - 1, attributes=codec)
        decode(build(RECORDS), impl=impl)
        tracemalloc.start()
        try:
            with pytest.raises(DecodeError, match="do not fit"):
                decode(batch, impl=impl)
            assert tracemalloc.get_traced_memory()[1] < 64 * 1024
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize(
        "record",
        [
            varint(-1) + raw_record()[1:],
            varint(100) + raw_record()[1:],
            varint(2**31 - 1) + raw_record()[1:],
            varint(5) + raw_record()[1:],
            raw_record(tail=b"\x00"),
            raw_record(key=varint(-2)),
            raw_record(value=varint(-(2**31))),
            raw_record(key=varint(2**31 - 1)),
            raw_record(value=varint(2**31 - 1)),
            raw_record(value=b"\xff" * 5),
            raw_record(value=b"\x80" * 5 + b"\x00"),
            raw_record(value=b"\xfe\xff\xff\xff\x1f"),
            raw_record(timestamp=b"\xff" * 10),
            raw_record(timestamp=b"\xff" * 9 + b"\x02"),
            raw_record(timestamp=varlong(2**63 - 1)),
            raw_record(offset=varint(-1)),
            raw_record(offset=varint(1)),
            raw_record(headers=varint(-1)),
            raw_record(headers=varint(1)),
            raw_record(headers=varint(2**31 - 1)),
            raw_record(headers=varint(1) + varint(-1) + varint(0)),
            raw_record(headers=varint(1) + varint(50) + varint(0)),
            raw_record(headers=varint(1) + varint(0) + varint(-2)),
            raw_record(headers=varint(1) + varint(0) + varint(50)),
            raw_record(headers=varint(1) + varint(0) + varint(2**31 - 1)),
            raw_record(headers=varint(1) + varint(1) + b"\xff" + varint(0)),
            raw_record(headers=varint(1) + varint(3) + b"\xed\xa0\x80" + varint(0)),
            raw_record(headers=varint(2) + (varint(1) + b"\xc3" + varint(0)) + (varint(1) + b"\xa9" + varint(0))),
        ],
    )
    @pytest.mark.parametrize("before", [0, 40], ids=["alone", "behind others"])
    def test_each_field_is_checked(self, impl: Impl, record: bytes, before: int, few: Callable[[int], None]) -> None:
        few(before // 2)
        headers = varint(1) + varint(1) + b"k" + varint(1) + b"v"
        good = b"".join(raw_record(offset=varint(at), headers=headers) for at in range(before))
        if record.startswith(raw_record()[:1]):
            record = record.replace(varlong(0) + varint(0), varlong(0) + varint(before), 1)
        data = bytes(assemble(good + record, before + 1)) + bytes(build(RECORDS))

        with pytest.raises(DecodeError):
            list(iterate(split(data)[0][1]))
        with pytest.raises(DecodeError):
            decode(data, impl=impl)

    def test_a_header_key_that_begins_within_a_character_is_refused(self, impl: Impl) -> None:
        """Two keys that are text only behind one another."""
        halves = varint(2) + (varint(1) + b"\xc3" + varint(0)) + (varint(1) + b"\xa9" + varint(0))

        with pytest.raises(DecodeError, match="UTF-8"):
            decode(assemble(raw_record(headers=halves), 1), impl=impl)

    def test_very_many_headers_of_one_record_are_read(self, impl: Impl) -> None:
        data = bytes(assemble(raw_record(headers=varint(50_000) + b"\x02a\x01" * 50_000), 1))

        assert records(decode(data, impl=impl)) == list(iterate(data))

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
    def test_the_smallest_records_take_bounded_memory(self, impl: Impl, codec: Codec) -> None:
        payload = b"".join(raw_record(offset=varint(at)) for at in range(200_000))
        data = assemble(compress(codec, payload), 200_000, attributes=codec)
        decode(data[:0], impl=impl)
        tracemalloc.start()
        try:
            assert decode(data, impl=impl, columns=ALL_COLUMNS).count == 200_000
            assert tracemalloc.get_traced_memory()[1] <= 64 * len(payload)
        finally:
            tracemalloc.stop()


def note_damage(told: list[int], seen: list[int], header: BatchHeader, view: memoryview, error: DecodeError) -> None:
    """All that comes before it was seen, and nothing behind it."""
    assert read_header(view) == header
    assert max(seen, default=-1) < header.base_offset
    told.append(header.base_offset)


def test_batches_that_cannot_be_read_are_left_out_and_told_in_their_order(impl: Impl) -> None:
    chance = random.Random(1)
    for _ in range(20):
        log, good, broken, offset = bytearray(), list[int](), list[int](), 0
        for _ in range(chance.randint(1, 30)):
            name = chance.choice(list(poison.KINDS)) if chance.random() < 0.2 else None
            if name == "zstd bomb":
                name = "garbage"
            data = bytearray(poison.good(codec=chance.choice(list(Codec))) if name is None else poison.KINDS[name]())
            stamp(data, offset, 0)
            end = read_header(data).next_offset
            if name is None:
                good += range(offset, end)
            else:
                broken.append(offset)
            log += data
            offset = end
        told: list[int] = []
        seen: list[int] = []

        pieces = decode_pieces(
            bytes(log),
            on_corrupt=partial(note_damage, told, seen),
            piece_bytes=chance.choice([100, 1 << 20]),
            impl=impl,
        )
        for piece in pieces:
            assert piece.offset is not None
            seen += piece.offset.tolist()
            assert piece.next_offset > max(seen, default=-1)
        assert (seen, told) == (good, broken)


def test_who_raises_at_a_batch_that_cannot_be_read_has_had_all_before_it(impl: Impl) -> None:
    log = bytearray()
    for offset, data in ((0, poison.good()), (3, poison.good()), (6, poison.garbage()), (9, poison.good())):
        stamped = bytearray(data)
        stamp(stamped, offset, 0)
        log += stamped

    def refuse(header: BatchHeader, view: memoryview, error: DecodeError) -> None:
        raise LookupError(header.base_offset)

    pieces = decode_pieces(bytes(log), on_corrupt=refuse, impl=impl)
    first = next(pieces)
    assert first.offset is not None
    assert (first.offset.tolist(), first.next_offset) == (list(range(6)), 6)
    with pytest.raises(LookupError, match="6"):
        next(pieces)
