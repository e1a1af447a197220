"""Records: both ways against two other clients, round trips, damage, and bounded memory."""

import random
import struct
import tracemalloc
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords

from penstock.protocol.batch import HEADER, BatchHeader, check_produced, read_header, split, stamp_crc, verify
from penstock.protocol.compression import Codec, compress
from penstock.protocol.errors import DecodeError, EncodeError
from penstock.protocol.records import NewRecord, Record, build, iterate
from penstock.protocol.varint import varint, varlong

NOW = 1_700_000_000_000

# Nulls, tombstones, empty and long fields, timestamps that go back, lengths at the edges of one, two and three bytes.
RECORDS = [
    NewRecord(b"value", key=b"key", timestamp=NOW),
    NewRecord(None, key=b"tombstone", timestamp=NOW + 1),
    NewRecord(b"no key", timestamp=NOW - 5000),
    NewRecord(None, timestamp=NOW),
    NewRecord(b"", key=b"", timestamp=NOW + 63),
    NewRecord(b"headers", key=b"k", headers=(("trace", b"\x00\xff"), ("null", None), ("empty", b"")), timestamp=NOW),
    NewRecord(b"words", headers=(("", b"nameless"), ("größe-数", b"unicode"), ("trace", b"again")), timestamp=NOW + 64),
    NewRecord(b"much later", timestamp=NOW + 10_000_000_000),
    *(
        NewRecord(b"v" * size, key=b"k" * (size // 2), timestamp=NOW + size)
        for size in (63, 64, 127, 8191, 8192, 70_000)
    ),
    NewRecord(b"many headers", headers=[(f"name {n}", b"%d" % n) for n in range(100)], timestamp=NOW),
    *(NewRecord(b"%d" % n, timestamp=NOW + n) for n in range(150)),
]

Plain = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def expected(records: Sequence[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, record.timestamp, record.key, record.value, tuple(record.headers))
        for index, record in enumerate(records)
    ]


def as_records(others: Any) -> list[Record]:
    return [
        Record(other.offset, other.timestamp, other.key, other.value, tuple(map(tuple, other.headers)))
        for other in others
    ]


def assemble(payload: bytes, count: int, *, last: int | None = None, **fields: int) -> bytearray:
    """A batch around hand-made record bytes, with a right checksum."""
    header = BatchHeader(
        0, 49 + len(payload), -1, 2, 0, 0, count - 1 if last is None else last, NOW, NOW, -1, -1, -1, count
    )
    batch = bytearray(HEADER.pack(*header._replace(**fields)) + payload)
    stamp_crc(batch)
    return batch


def raw_record(
    *,
    attributes: bytes = b"\x00",
    timestamp: bytes = varlong(0),
    offset: bytes = varint(0),
    key: bytes = varint(-1),
    value: bytes = varint(-1),
    headers: bytes = varint(0),
    tail: bytes = b"",
) -> bytes:
    body = attributes + timestamp + offset + key + value + headers + tail
    return varint(len(body)) + body


def peak_of(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestOtherClients:
    @pytest.mark.parametrize("codec", Codec)
    @pytest.mark.parametrize("other", [KafkaPythonBatch, AiokafkaBatch], ids=["kafka-python", "aiokafka"])
    def test_they_read_what_we_build(self, codec: Codec, other: Any) -> None:
        batch = build(RECORDS, base_offset=1000, codec=codec)
        theirs = other(batch)

        assert theirs.validate_crc()
        assert theirs.compression_type == codec
        assert as_records(theirs) == expected(RECORDS, base_offset=1000)

    @pytest.mark.parametrize("codec", Codec)
    @pytest.mark.parametrize("builder", [KafkaPythonBuilder, AiokafkaBuilder], ids=["kafka-python", "aiokafka"])
    def test_we_read_what_they_build(self, codec: Codec, builder: Any) -> None:
        theirs = builder(
            magic=2,
            compression_type=int(codec),
            is_transactional=True,
            producer_id=4000,
            producer_epoch=1,
            base_sequence=9,
            batch_size=10_000_000,
        )
        for offset, record in enumerate(RECORDS):
            theirs.append(offset, record.timestamp, record.key, record.value, list(record.headers))
        ((header, batch),) = split(theirs.build())
        verify(header, batch)
        check_produced(header)

        assert header.codec is codec
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 1, 9)
        assert list(iterate(batch)) == expected(RECORDS)

    @pytest.mark.parametrize("codec", Codec)
    def test_what_they_build_is_what_we_build(self, codec: Codec) -> None:
        """Uncompressed even to the byte; kafka-python's gzip header carries the time of day."""
        theirs = KafkaPythonBuilder(
            magic=2,
            compression_type=int(codec),
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=10_000_000,
        )
        for offset, record in enumerate(RECORDS):
            theirs.append(offset, record.timestamp, record.key, record.value, list(record.headers))
        their_batch = theirs.build()
        ours = build(RECORDS, codec=codec, leader_epoch=read_header(their_batch).leader_epoch)

        assert list(iterate(ours)) == list(iterate(their_batch))
        assert codec is not Codec.NONE or ours == their_batch

    def test_they_read_several_of_our_batches_in_a_row(self) -> None:
        field = b"".join(build(RECORDS[:5], base_offset=base, codec=Codec.ZSTD) for base in (0, 5, 10))
        offsets = [record.offset for batch in MemoryRecords(field) for record in batch]

        assert offsets == list(range(15))


nullable = st.none() | st.binary(max_size=100)
timestamps = st.integers(-1, 2**62)
new_records = st.builds(
    NewRecord,
    value=nullable | st.binary(max_size=5).map(lambda piece: piece * 2000),
    key=nullable,
    headers=st.lists(st.tuples(st.text(max_size=10), nullable), max_size=4),
    timestamp=st.integers(NOW - 100, NOW + 100) | timestamps,
)


class TestRoundTrip:
    @pytest.mark.parametrize("codec", Codec)
    @settings(deadline=None)
    @given(
        records=st.lists(new_records, min_size=1, max_size=20),
        base_offset=st.integers(0, 2**63 - 100),
        producer_id=st.integers(0, 2**63 - 1),
    )
    def test_what_is_built_is_iterated(
        self, codec: Codec, records: list[NewRecord], base_offset: int, producer_id: int
    ) -> None:
        batch = build(
            records,
            base_offset=base_offset,
            codec=codec,
            leader_epoch=6,
            producer_id=producer_id,
            producer_epoch=2,
            base_sequence=3,
        )
        ((header, view),) = split(batch)
        verify(header, view)
        check_produced(header)

        assert list(iterate(view)) == expected(records, base_offset)
        assert (header.base_offset, header.leader_epoch) == (base_offset, 6)
        assert header.max_timestamp == max(record.timestamp for record in records)

    @settings(deadline=None)
    @given(
        records=st.lists(new_records, min_size=1, max_size=20),
        kept=st.sets(st.integers(0, 19)),
        codec=st.sampled_from(Codec),
    )
    def test_records_that_stay_when_others_are_dropped_keep_their_offsets(
        self, records: list[NewRecord], kept: set[int], codec: Codec
    ) -> None:
        batch = build(records, base_offset=500, codec=codec)
        header = read_header(batch)
        stay = [record for record in iterate(batch) if record.offset - 500 in kept]
        compacted = build(
            stay,
            base_offset=500,
            offset_deltas=[record.offset - 500 for record in stay],
            last_offset_delta=header.last_offset_delta,
            codec=codec,
        )
        after = read_header(compacted)
        verify(after, compacted)

        assert list(iterate(compacted)) == stay
        assert (after.next_offset, after.record_count) == (header.next_offset, len(stay))

    @pytest.mark.parametrize("records", [[2**63 - 1, -1], [-1, 2**63 - 2], [-(2**63), -1], [2**63 - 1, 2**63 - 70]])
    def test_timestamps_at_the_edge_of_64_bits_survive(self, records: list[int]) -> None:
        batch = build([NewRecord(b"", timestamp=timestamp) for timestamp in records])

        assert [record.timestamp for record in iterate(batch)] == records

    def test_log_append_time_replaces_every_timestamp(self) -> None:
        batch = build(RECORDS, log_append_time=NOW + 9)
        header = read_header(batch)

        assert header.is_log_append_time
        assert header.max_timestamp == NOW + 9
        assert {record.timestamp for record in iterate(batch)} == {NOW + 9}

    def test_every_kind_of_buffer_is_iterated(self) -> None:
        batch = build(RECORDS)

        for view in (bytes(batch), batch, memoryview(batch), memoryview(b"xx" + batch)[2:]):
            assert list(iterate(view)) == expected(RECORDS)

    def test_records_outlive_the_buffer_they_came_from(self) -> None:
        batch = build(RECORDS)
        records = iterate(batch)
        first = next(records)
        batch[:] = bytes(len(batch))

        assert [first, *records] == expected(RECORDS)

    def test_transactional_and_control_bits_are_set_when_asked_for(self) -> None:
        header = read_header(build(RECORDS, transactional=True, control=True, producer_id=1, producer_epoch=0))

        assert (header.is_transactional, header.is_control) == (True, True)


class TestBuild:
    def test_a_batch_without_records_covers_offsets_that_must_be_given(self) -> None:
        batch = build([], base_offset=10, last_offset_delta=4)
        header = read_header(batch)
        verify(header, batch)

        assert (len(batch), header.next_offset) == (HEADER.size, 15)
        assert list(iterate(batch)) == []
        with pytest.raises(EncodeError, match="one offset or more"):
            build([])

    @pytest.mark.parametrize("deltas", [[0, 0], [1, 0], [-1, 0], [0], [0, 1, 2]])
    def test_offset_deltas_ascend_and_are_as_many_as_the_records(self, deltas: list[int]) -> None:
        with pytest.raises(EncodeError, match="offset delta"):
            build(RECORDS[:2], offset_deltas=deltas)

    @pytest.mark.parametrize("last", [0, -1, -5])
    def test_the_last_offset_delta_covers_all_records(self, last: int) -> None:
        with pytest.raises(EncodeError, match="those of all its records"):
            build(RECORDS[:2], last_offset_delta=last)

    @pytest.mark.parametrize(
        "options",
        [
            {"base_offset": 2**63},
            {"leader_epoch": 2**31},
            {"producer_id": -(2**63) - 1},
            {"producer_epoch": 2**15},
            {"base_sequence": 2**31},
            {"last_offset_delta": 2**31},
            {"log_append_time": 2**63},
        ],
    )
    def test_a_header_field_out_of_range_is_an_encode_error(self, options: dict[str, int]) -> None:
        with pytest.raises(EncodeError, match="out of range"):
            build(RECORDS[:1], **options)  # type: ignore[arg-type]

    @pytest.mark.parametrize("timestamps", [[2**63], [0, -(2**63) - 1], [2**63 - 1, -2]])
    def test_timestamps_that_do_not_fit_are_an_encode_error(self, timestamps: list[int]) -> None:
        with pytest.raises(EncodeError, match="64 bits"):
            build([NewRecord(b"", timestamp=timestamp) for timestamp in timestamps])

    def test_a_header_key_that_is_no_text_is_an_encode_error(self) -> None:
        with pytest.raises(EncodeError, match="UTF-8"):
            build([NewRecord(b"", headers=[("\ud800", b"")])])

    def test_a_batch_over_two_gigabytes_is_refused_before_it_is_put_together(self) -> None:
        big = bytes(16 * 1024 * 1024)

        def refused() -> None:
            with pytest.raises(EncodeError, match="at most 2147483647 bytes"):
                build([NewRecord(big)] * 128)

        assert peak_of(refused) < len(big)


class TestDamage:
    def test_a_batch_cut_anywhere_is_a_decode_error(self) -> None:
        batch = build(RECORDS[:7])

        for length in range(len(batch)):
            with pytest.raises(DecodeError):
                list(iterate(batch[:length]))

    @pytest.mark.parametrize("codec", Codec)
    def test_a_payload_cut_anywhere_is_a_decode_error_though_the_header_agrees(self, codec: Codec) -> None:
        batch = build(RECORDS[:7], codec=codec)
        header = read_header(batch)

        for length in range(HEADER.size, len(batch)):
            cut = batch[:length]
            HEADER.pack_into(cut, 0, *header._replace(batch_length=length - 12))
            with pytest.raises(DecodeError):
                list(iterate(cut))

    @pytest.mark.parametrize("codec", Codec)
    def test_bytes_behind_the_records_are_a_decode_error(self, codec: Codec) -> None:
        payload = raw_record() + b"\x00"

        with pytest.raises(DecodeError, match="1 bytes follow the last"):
            list(iterate(assemble(compress(codec, payload), 1, attributes=codec)))

    def test_the_count_must_be_right(self) -> None:
        payload = raw_record() + raw_record(offset=varint(1))

        assert len(list(iterate(assemble(payload, 2)))) == 2
        with pytest.raises(DecodeError, match="follow the last"):
            list(iterate(assemble(payload, 1)))
        with pytest.raises(DecodeError, match="past the end"):
            list(iterate(assemble(payload, 3)))
        with pytest.raises(DecodeError, match="impossible"):
            list(iterate(assemble(payload, -1)))

    def test_a_count_of_two_billion_costs_nothing(self) -> None:
        batch = assemble(raw_record(), 2**31 - 1)

        def refused() -> None:
            with pytest.raises(DecodeError, match="past the end"):
                list(iterate(batch))

        assert peak_of(refused) < 64 * 1024

    @pytest.mark.parametrize(
        ("record", "message"),
        [
            (varint(-1) + raw_record()[1:], "record's length"),
            (varint(100) + raw_record()[1:], "record's length"),
            (varint(5) + raw_record()[1:], "not as long as"),
            (raw_record(tail=b"\x00"), "not as long as"),
            (raw_record(key=varint(-2)), "has length -2"),
            (raw_record(value=varint(-3)), "has length -3"),
            (raw_record(value=varint(-(2**31))), "has length -2147483648"),
            (raw_record(key=varint(2**31 - 1)), "past the end"),
            (raw_record(value=varint(2**31 - 1)), "past the end"),
            (raw_record(value=b"\xff" * 5), "longer than 32 bits"),
            (raw_record(timestamp=b"\xff" * 10), "longer than 64 bits"),
            (raw_record(timestamp=varlong(2**63 - 1)), "timestamp"),
            (raw_record(offset=varint(-1)), "do not ascend"),
            (raw_record(offset=varint(1)), "do not ascend"),
            (raw_record(headers=varint(-1)), "header count"),
            (raw_record(headers=varint(1)), "header count"),
            (raw_record(headers=varint(2**31 - 1)), "header count"),
            (raw_record(headers=varint(1) + varint(-1) + varint(0)), "header's key"),
            (raw_record(headers=varint(1) + varint(50) + varint(0)), "header's key"),
            (raw_record(headers=varint(1) + varint(0) + varint(-2)), "has length -2"),
            (raw_record(headers=varint(1) + varint(0) + varint(50)), "not as long as"),
            (raw_record(headers=varint(1) + varint(1) + b"\xff" + varint(0)), "not UTF-8"),
            (raw_record(headers=varint(1) + varint(3) + b"\xed\xa0\x80" + varint(0)), "not UTF-8"),
        ],
    )
    def test_each_field_is_checked(self, record: bytes, message: str) -> None:
        with pytest.raises(DecodeError, match=message):
            list(iterate(assemble(record, 1)))

    def test_a_field_that_reaches_into_the_next_record_is_a_decode_error(self) -> None:
        greedy = raw_record(value=varint(3))

        with pytest.raises(DecodeError, match="not as long as"):
            list(iterate(assemble(greedy + raw_record(offset=varint(1)), 2)))

    @pytest.mark.parametrize("deltas", [(1, 0), (0, 0), (0, 2)])
    def test_offsets_ascend_and_stay_within_the_batch(self, deltas: tuple[int, int]) -> None:
        payload = b"".join(raw_record(offset=varint(delta)) for delta in deltas)

        with pytest.raises(DecodeError, match="do not ascend"):
            list(iterate(assemble(payload, 2)))

    def test_records_before_the_damage_are_given(self) -> None:
        records = iterate(assemble(raw_record() + raw_record(offset=varint(0)), 2))

        assert next(records).offset == 0
        with pytest.raises(DecodeError):
            next(records)

    def test_record_attributes_are_ignored_as_kafka_ignores_them(self) -> None:
        (record,) = iterate(assemble(raw_record(attributes=b"\xff"), 1))

        assert record == Record(0, NOW, None, None)

    def test_an_unknown_codec_is_a_decode_error(self) -> None:
        with pytest.raises(DecodeError, match="codec 7"):
            list(iterate(assemble(raw_record(), 1, attributes=7)))

    def test_an_old_format_is_a_decode_error(self) -> None:
        with pytest.raises(DecodeError, match="format 1 is not supported"):
            list(iterate(assemble(raw_record(), 1, magic=1)))

    def test_any_timestamp_delta_passes_when_the_broker_gave_the_time(self) -> None:
        (record,) = iterate(assemble(raw_record(timestamp=varlong(2**63 - 1)), 1, attributes=8))

        assert record.timestamp == NOW

    @pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
    def test_a_batch_decompresses_to_the_limit_and_not_beyond(self, codec: Codec) -> None:
        batch = build(RECORDS, codec=codec)
        size = len(build(RECORDS)) - HEADER.size

        assert list(iterate(batch, max_decompressed_bytes=size)) == expected(RECORDS)
        with pytest.raises(DecodeError, match=f"more than {size - 1} bytes"):
            list(iterate(batch, max_decompressed_bytes=size - 1))


class TestMemory:
    """At most 64 times the input and 64 KiB, whatever the input claims."""

    @pytest.mark.parametrize(
        "payload",
        [
            pytest.param(
                lambda: (b"".join(raw_record(offset=varint(n)) for n in range(20_000)), 20_000), id="empty records"
            ),
            pytest.param(lambda: (raw_record(headers=varint(50_000) + b"\x00\x01" * 50_000), 1), id="empty headers"),
            pytest.param(
                lambda: (raw_record(headers=varint(50_000) + b"\x06\xe2\x82\xac\x04ab" * 50_000), 1), id="small headers"
            ),
            pytest.param(
                lambda: (raw_record(headers=varint(50_000) + b"\x00\x01" * 25_000, tail=b"\xff" * 50_000), 1),
                id="headers that end in damage",
            ),
        ],
    )
    def test_the_worst_batches_stay_within_the_bound(self, payload: Callable[[], tuple[bytes, int]]) -> None:
        data, count = payload()
        batch = assemble(data, count)

        def decode() -> None:
            try:
                list(iterate(batch))
            except DecodeError:
                pass

        assert peak_of(decode) <= 64 * len(batch) + 64 * 1024

    @pytest.mark.parametrize("codec", Codec)
    @pytest.mark.parametrize("seed", range(4))
    def test_mutated_batches_give_records_or_a_decode_error(self, codec: Codec, seed: int) -> None:
        limit = 32 * 1024
        chance = random.Random(f"{codec}-{seed}")
        originals = [build(RECORDS[:count], codec=codec) for count in (1, 3, 7, 8)]
        outcomes = {"records": 0, "error": 0}

        def decode(batch: bytearray) -> None:
            try:
                for header, view in split(batch):
                    verify(header, view)
                    deque(iterate(view, max_decompressed_bytes=limit), maxlen=0)
                outcomes["records"] += 1
            except DecodeError:
                outcomes["error"] += 1

        tracemalloc.start()
        try:
            for case in range(1000):
                batch = mutate(chance, chance.choice(originals))
                tracemalloc.reset_peak()
                before, _ = tracemalloc.get_traced_memory()
                decode(batch)
                peak = tracemalloc.get_traced_memory()[1] - before
                assert peak <= 64 * len(batch) + 64 * 1024 + 3 * limit, f"seed {seed}, case {case}: {batch.hex()}"
        finally:
            tracemalloc.stop()

        assert min(outcomes.values()) > 10, f"seed {seed}: {outcomes}"


INTERESTING = [b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f"]


def mutate(chance: random.Random, original: bytearray) -> bytearray:
    """Some bytes changed, put in or taken out, then length and checksum mended so that the records are reached."""
    batch = bytearray(original)
    for _ in range(chance.randint(1, 3)):
        # Mostly in the records; sometimes in the header, from the attributes on.
        position = chance.randrange(61 if chance.random() < 0.8 else 21, len(batch))
        match chance.randrange(4):
            case 0:
                batch[position] = chance.randrange(256)
            case 1:
                batch[position] ^= 1 << chance.randrange(8)
            case 2:
                batch[position : position + 1] = chance.choice(INTERESTING)
            case _ if len(batch) > 70:
                del batch[position : position + chance.randint(1, 3)]
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    stamp_crc(batch)
    return batch
