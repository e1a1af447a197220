"""Batch headers: layout, splitting, checks and stamps."""

import random
import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from penstock.protocol.batch import (
    HEADER,
    MIN_RECORD_BYTES,
    BatchHeader,
    check_produced,
    check_shape,
    read_header,
    read_produced,
    split,
    stamp,
    stamp_crc,
    stamp_log_append_time,
    verify,
    whole_batches,
)
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES, Codec
from penstock.protocol.errors import DecodeError
from penstock.protocol.records import NewRecord, build, iterate

NOW = 1_700_000_000_000


def a_batch(count: int = 3, **options: Any) -> bytearray:
    return build([NewRecord(b"value %d" % n, timestamp=NOW + n) for n in range(count)], **options)


def with_fields(batch: bytearray, **fields: int) -> bytearray:
    """The batch with some header fields changed and the checksum right again."""
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *read_header(batch)._replace(**fields))
    stamp_crc(changed)
    return changed


def produced(**fields: int) -> BatchHeader:
    return read_header(a_batch())._replace(**fields)


def test_the_header_is_61_bytes() -> None:
    assert HEADER.size == 61


def test_a_header_written_out_by_hand_is_read_field_by_field() -> None:
    data = bytes.fromhex(
        "0000000000000064"  # base offset
        "00000040"  # length of what follows
        "00000005"  # leader epoch
        "02"  # magic
        "deadbeef"  # crc
        "0074"  # attributes: zstd, transactional, control, delete horizon
        "00000009"  # last offset delta
        "0000018bcfe56800"  # base timestamp
        "0000018bcfe56801"  # max timestamp
        "0000000000000fa0"  # producer id
        "0003"  # producer epoch
        "0000002a"  # base sequence
        "0000000a"  # records
    )
    header = read_header(b"??" + data, 2)

    assert header == BatchHeader(
        100, 64, 5, 2, 0xDEADBEEF, 0x74, 9, 1_700_000_000_000, 1_700_000_000_001, 4000, 3, 42, 10
    )
    assert (header.size, header.last_offset, header.next_offset) == (76, 109, 110)
    assert header.codec is Codec.ZSTD
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (True, True, True)
    assert not header.is_log_append_time


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_codec_is_a_decode_error(number: int) -> None:
    with pytest.raises(DecodeError, match=f"codec {number} is unknown"):
        _ = produced(attributes=number).codec


def test_a_header_cut_off_is_a_decode_error() -> None:
    batch = a_batch()
    for length in range(HEADER.size):
        with pytest.raises(DecodeError, match=f"{length} remain"):
            read_header(batch[:length])
    with pytest.raises(DecodeError, match="0 remain"):
        read_header(batch, len(batch) + 5)


def test_other_clients_read_the_same_header() -> None:
    batch = a_batch(base_offset=7, producer_id=4000, producer_epoch=3, base_sequence=11, transactional=True)
    header = read_header(batch)

    for other in (KafkaPythonBatch(batch), AiokafkaBatch(batch)):
        assert other.validate_crc()
        assert (other.base_offset, other.crc, other.magic) == (7, header.crc, 2)
        assert (other.producer_id, other.producer_epoch, other.base_sequence) == (4000, 3, 11)
        assert (other.first_timestamp, other.max_timestamp) == (NOW, NOW + 2)
        assert (other.is_transactional, other.is_control_batch) == (True, False)
        assert (other.last_offset_delta, other.next_offset) == (2, header.next_offset)


class TestSplit:
    def test_no_bytes_hold_no_batches(self) -> None:
        assert split(b"") == []

    def test_batches_are_views_of_the_field_and_not_copies(self) -> None:
        first, second = a_batch(1), a_batch(5, base_offset=1)
        field = bytearray(first + second)
        batches = split(field)

        assert [header for header, _ in batches] == [read_header(first), read_header(second)]
        assert [view for _, view in batches] == [first, second]
        batches[1][1][0] = 0x7F
        assert field[len(first)] == 0x7F

    def test_a_field_cut_anywhere_but_between_batches_is_a_decode_error(self) -> None:
        first, second = a_batch(1), a_batch(2)
        field = bytes(first + second)

        for length in range(len(field)):
            if length in (0, len(first)):
                continue
            with pytest.raises(DecodeError, match="remain"):
                split(field[:length])

    @pytest.mark.parametrize("tail", [b"\x00", b"\x00" * 16, b"\xff" * 70])
    def test_bytes_behind_the_last_batch_are_a_decode_error(self, tail: bytes) -> None:
        with pytest.raises(DecodeError):
            split(bytes(a_batch()) + tail)

    @pytest.mark.parametrize("length", [48, 0, -1, -12, -13, -(2**31)])
    def test_a_length_shorter_than_the_header_is_a_decode_error(self, length: int) -> None:
        with pytest.raises(DecodeError, match="shorter than its header"):
            split(with_fields(a_batch(), batch_length=length))

    def test_a_length_beyond_the_field_is_a_decode_error(self) -> None:
        batch = a_batch()
        for length in (len(batch) - 11, 2**31 - 1):
            with pytest.raises(DecodeError, match="does not fit"):
                split(with_fields(batch, batch_length=length))

    def test_a_header_without_records_is_a_batch(self) -> None:
        empty = build([], last_offset_delta=4)

        assert [(header.record_count, len(view)) for header, view in split(empty)] == [(0, 61)]

    @pytest.mark.parametrize("magic", [0, 1])
    def test_formats_0_and_1_are_refused_by_name_even_when_shorter_than_a_header(self, magic: int) -> None:
        old_message = struct.pack(">qiIbb", 0, 14, 0, magic, 0) + struct.pack(">ii", -1, -1)
        assert len(old_message) < HEADER.size

        for field in (old_message, old_message * 5, bytes(a_batch()) + old_message):
            with pytest.raises(DecodeError, match=f"format {magic} is not supported"):
                split(field)

    def test_a_format_of_the_future_is_refused(self) -> None:
        with pytest.raises(DecodeError, match="format 3 is unknown"):
            split(with_fields(a_batch(), magic=3))

    def test_a_batch_over_the_limit_is_refused_and_one_at_the_limit_is_not(self) -> None:
        batch = a_batch()

        assert len(split(batch, max_batch_bytes=len(batch))) == 1
        with pytest.raises(DecodeError, match=f"limit of {len(batch) - 1}"):
            split(batch, max_batch_bytes=len(batch) - 1)


class TestVerify:
    def test_a_flipped_bit_anywhere_in_the_checksummed_part_is_found(self) -> None:
        batch = a_batch()
        verify(read_header(batch), batch)

        for position in range(17, len(batch)):
            damaged = bytearray(batch)
            damaged[position] ^= 1 << position % 8
            with pytest.raises(DecodeError):
                verify(read_header(damaged), damaged)

    def test_the_message_names_both_checksums(self) -> None:
        batch = a_batch()
        crc = read_header(batch).crc
        batch[-1] ^= 1

        with pytest.raises(DecodeError, match=f"header says {crc:08x}"):
            verify(read_header(batch), batch)

    @pytest.mark.parametrize("magic", [0, 1, 3, -1])
    def test_the_format_is_checked(self, magic: int) -> None:
        batch = with_fields(a_batch(), magic=magic)

        with pytest.raises(DecodeError, match="message format"):
            verify(read_header(batch), batch)

    def test_the_size_must_be_that_of_the_header(self) -> None:
        batch = a_batch()

        for view in (batch[:-1], batch + b"\x00"):
            with pytest.raises(DecodeError, match="handed over"):
                verify(read_header(batch), view)

    @pytest.mark.parametrize(("count", "last"), [(-1, 2), (4, 2), (3, -1), (0, -1), (2**31 - 1, 2), (-(2**31), -1)])
    def test_impossible_counts_are_refused(self, count: int, last: int) -> None:
        batch = with_fields(a_batch(), record_count=count, last_offset_delta=last)

        with pytest.raises(DecodeError, match="impossible"):
            verify(read_header(batch), batch)

    @pytest.mark.parametrize(("count", "last"), [(0, 2), (1, 2), (3, 2), (3, 2**31 - 1)])
    def test_gaps_that_compaction_leaves_pass(self, count: int, last: int) -> None:
        batch = with_fields(a_batch(), record_count=count, last_offset_delta=last)
        header = read_header(batch)
        verify(header, batch)

        assert header.last_offset == last

    def test_an_offset_beyond_64_bits_is_refused(self) -> None:
        batch = a_batch()
        check_shape(read_header(batch)._replace(base_offset=2**63 - 3), batch)

        with pytest.raises(DecodeError, match="largest offset"):
            check_shape(read_header(batch)._replace(base_offset=2**63 - 2), batch)

    @pytest.mark.parametrize("seed", range(3))
    def test_a_header_of_random_bytes_passes_or_is_a_decode_error(self, seed: int) -> None:
        chance = random.Random(seed)
        refused = 0
        for _ in range(2000):
            data = bytearray(chance.randbytes(chance.randint(61, 90)))
            struct.pack_into(">i", data, 8, len(data) - 12)
            data[16] = 2
            stamp_crc(data)
            try:
                for header, view in split(data):
                    verify(header, view)
                    check_produced(header)
            except DecodeError:
                refused += 1

        assert refused == 2000, f"seed {seed}"


class TestCheckProduced:
    @pytest.mark.parametrize("codec", Codec)
    @pytest.mark.parametrize("transactional", [False, True])
    def test_what_a_producer_sends_passes(self, codec: Codec, transactional: bool) -> None:
        header = read_header(
            a_batch(codec=codec, producer_id=0, producer_epoch=0, base_sequence=0, transactional=transactional)
        )
        check_produced(header)

        assert header.codec is codec

    @pytest.mark.parametrize(("epoch", "sequence"), [(-1, -1), (0, 0), (-1, 0)])
    def test_without_a_producer_id_epoch_and_sequence_do_not_matter(self, epoch: int, sequence: int) -> None:
        header = produced(producer_id=-1, producer_epoch=epoch, base_sequence=sequence)

        check_produced(header)
        assert header.producer_id == -1

    @pytest.mark.parametrize(("count", "last"), [(0, 0), (2, 2), (1, 2), (-1, -2), (0, -1)])
    def test_offsets_must_be_dense_and_records_present(self, count: int, last: int) -> None:
        with pytest.raises(DecodeError, match="without gaps"):
            check_produced(produced(record_count=count, last_offset_delta=last))

    @pytest.mark.parametrize("bit", [3, *range(5, 15)])
    def test_only_the_codec_and_transactional_bits_may_be_set(self, bit: int) -> None:
        with pytest.raises(DecodeError, match=f"not attributes {1 << bit:#06x}"):
            check_produced(produced(attributes=1 << bit))

    def test_the_sign_bit_of_the_attributes_is_a_bit_too(self) -> None:
        with pytest.raises(DecodeError, match="not attributes 0x8000"):
            check_produced(produced(attributes=-(2**15)))

    @pytest.mark.parametrize("number", [5, 6, 7])
    def test_the_codec_must_be_known(self, number: int) -> None:
        with pytest.raises(DecodeError, match=f"codec {number}"):
            check_produced(produced(attributes=number))

    @pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1), (-(2**15), 0), (0, -(2**31))])
    def test_a_producer_id_comes_with_an_epoch_and_a_sequence(self, epoch: int, sequence: int) -> None:
        with pytest.raises(DecodeError, match="counts both from 0"):
            check_produced(produced(producer_id=1, producer_epoch=epoch, base_sequence=sequence))

    def test_a_transaction_needs_a_producer_id(self) -> None:
        with pytest.raises(DecodeError, match="InitProducerId"):
            check_produced(produced(attributes=0x10))

    def test_a_producer_id_below_none_is_refused(self) -> None:
        with pytest.raises(DecodeError, match="producer id -2"):
            check_produced(produced(producer_id=-2))

    def test_a_count_beyond_what_the_bytes_can_hold_is_refused(self) -> None:
        batch = build([NewRecord(None)] * 10)
        assert len(batch) == HEADER.size + 10 * MIN_RECORD_BYTES, "the smallest records that there are"
        check_produced(read_header(batch))

        for count in (11, 2**31 - 1):
            lying = with_fields(batch, record_count=count, last_offset_delta=count - 1)
            with pytest.raises(DecodeError, match=f"{count} records do not fit 70 bytes"):
                check_produced(read_header(lying))
            assert read_produced(memoryview(lying)) is None

    @pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
    def test_a_count_beyond_what_a_codec_can_make_of_the_bytes_is_refused(self, codec: Codec) -> None:
        # Nothing compresses better than the smallest record over and over.
        batch = build([NewRecord(b"", timestamp=0)] * 200_000, codec=codec)
        assert read_produced(memoryview(batch)) == read_header(batch)
        check_produced(read_header(batch))

        # Few bytes cannot become many, and many bytes not more than is ever decompressed.
        for size in (1, 4_000, 4_000_000):
            small = build([NewRecord(random.Random(1).randbytes(size))], codec=codec)
            for count in (2**31 - 1, MAX_DECOMPRESSED_BYTES // MIN_RECORD_BYTES + 1):
                lying = with_fields(small, record_count=count, last_offset_delta=count - 1)
                with pytest.raises(DecodeError, match=f"compression {codec.name.lower()}"):
                    check_produced(read_header(lying))
                assert read_produced(memoryview(lying)) is None

    def test_a_stored_batch_may_claim_any_count(self) -> None:
        # A log that has such a batch, from before it was refused, must open with all it has.
        lying = with_fields(a_batch(1), record_count=2**31 - 1, last_offset_delta=2**31 - 2)
        verify(read_header(lying), lying)


class TestStamp:
    @pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (123_456_789_012, 77), (2**63 - 100, 2**31 - 1)])
    def test_base_offset_and_leader_epoch_change_and_nothing_else(self, offset: int, epoch: int) -> None:
        batch = a_batch()
        before = read_header(batch)
        stamp(memoryview(batch), offset, epoch)
        after = read_header(batch)

        assert after == before._replace(base_offset=offset, leader_epoch=epoch)
        verify(after, batch)
        assert [record.offset for record in iterate(batch)] == [offset, offset + 1, offset + 2]

    @pytest.mark.parametrize("codec", Codec)
    def test_log_append_time_is_what_every_reader_sees(self, codec: Codec) -> None:
        batch = a_batch(codec=codec)
        before = read_header(batch)
        stamp_log_append_time(memoryview(batch), NOW + 5000)
        after = read_header(batch)

        assert after.is_log_append_time
        assert after.codec is codec
        assert after._replace(crc=0) == before._replace(
            crc=0, attributes=before.attributes | 8, max_timestamp=NOW + 5000
        )
        verify(after, batch)
        assert [record.timestamp for record in iterate(batch)] == [NOW + 5000] * 3
        assert [record.timestamp for record in KafkaPythonBatch(batch)] == [NOW + 5000] * 3
        assert [record.timestamp for record in AiokafkaBatch(batch)] == [NOW + 5000] * 3


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_passes_every_check_is_read_at_a_stroke(codec: Codec) -> None:
    sound = a_batch(codec=codec, producer_id=5, producer_epoch=0, base_sequence=3)
    assert read_produced(memoryview(sound)) == read_header(sound)


@pytest.mark.parametrize("seed", range(300))
def test_what_is_read_at_a_stroke_passes_the_checks_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    batch = a_batch(chance.randint(1, 3))
    fields = {
        "batch_length": (0, 48, 49, len(batch) - 12, len(batch)),
        "magic": (0, 1, 2, 3),
        "attributes": (0, 1, 4, 5, 7, 8, 16, 32, -1),
        "last_offset_delta": (-1, 0, 1, 2, 0x7FFF_FFFF),
        "record_count": (-1, 0, 1, 2, 3, 50, 0x7FFF_FFFF),
        "producer_id": (-2, -1, 0, 9),
        "producer_epoch": (-1, 0),
        "base_sequence": (-1, 0),
        "base_offset": (0, -1, 0x7FFF_FFFF_FFFF_FFFF),
    }
    chosen = chance.sample(list(fields), chance.randint(0, 2))
    changed = with_fields(batch, **{name: chance.choice(fields[name]) for name in chosen})
    if chance.random() < 0.2:
        changed[chance.randrange(17, len(changed))] ^= 1 << chance.randrange(8)

    def passes() -> bool:
        try:
            [(header, view)] = split(changed)
            verify(header, view)
            check_produced(header)
        except (DecodeError, ValueError):
            return False
        return not header.is_transactional

    assert (read_produced(memoryview(changed)) is not None) == passes(), seed


def at(first: int, count: int, last_delta: int | None = None) -> bytearray:
    return build([NewRecord(b"x")] * count, base_offset=first, last_offset_delta=last_delta)


def test_whole_batches_end_where_the_last_whole_one_does() -> None:
    first, second = at(0, 1), at(1, 1)
    for cut in range(len(second)):
        assert whole_batches(memoryview(first + second[:cut])) == (len(first), 1)
    assert whole_batches(memoryview(first + second)) == (len(first + second), 2)


def test_a_batch_that_was_cut_off_is_left_out() -> None:
    data = memoryview(at(0, 3) + at(3, 2))

    assert whole_batches(data, 0) == (len(data), 5)
    assert whole_batches(data[:-1], 0) == (len(at(0, 3)), 3)
    assert whole_batches(data[: len(at(0, 3)) + 20], 0) == (len(at(0, 3)), 3)
    assert whole_batches(memoryview(b""), 7) == (0, 7)


def test_batches_behind_the_end_are_left_out() -> None:
    data = memoryview(at(0, 3) + at(3, 2) + at(9, 1))

    assert whole_batches(data, 0, 3) == (len(at(0, 3)), 3)
    assert whole_batches(data, 0, 4) == (len(at(0, 3) + at(3, 2)), 9)
    assert whole_batches(data, 0, 10) == (len(data), 10)
    assert whole_batches(memoryview(at(9, 1)), 5, 7) == (0, 9), "compaction has taken all that was wanted"


def test_after_compaction_the_next_offset_is_behind_the_gap() -> None:
    assert whole_batches(memoryview(at(4, 1, last_delta=9)), 2)[1] == 14
    assert whole_batches(memoryview(at(4, 1, last_delta=99) + at(5, 1)), 2)[1] == 6, "the last batch says it"


def test_what_is_no_batch_is_left_for_the_decoder_to_refuse() -> None:
    assert whole_batches(memoryview(bytes(100)), 3) == (100, 3)
    assert whole_batches(memoryview(at(0, 3))[:-1], 3) == (len(at(0, 3)) - 1, 3)
