"""Encoding: batches that `records.iterate` reads back, the same from both implementations."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from penstock.protocol.batch import HEADER, check_produced, read_header, verify
from penstock.protocol.columns import Binary, Columns, Headers, Impl, decode, encode
from penstock.protocol.compression import Codec
from penstock.protocol.errors import EncodeError
from penstock.protocol.records import NewRecord, build, iterate
from tests.protocol.columns.samples import IMPLEMENTATIONS, NOW, make_records

pytestmark = pytest.mark.parametrize("impl", IMPLEMENTATIONS)


def columns_of(new: list[NewRecord]) -> Columns:
    return decode(build(new))


def as_new(batch: memoryview) -> list[NewRecord]:
    return [NewRecord(value, key, headers, timestamp) for _, timestamp, key, value, headers in iterate(batch)]


def plain(new: list[NewRecord]) -> list[NewRecord]:
    return [record._replace(headers=tuple(record.headers)) for record in new]


class TestRoundTrip:
    @pytest.mark.parametrize("seed", range(60))
    def test_what_is_encoded_is_iterated(self, impl: Impl, seed: int) -> None:
        chance = random.Random(seed)
        new = make_records(chance, chance.choice((1, 2, 30, 200)))
        codec = chance.choice(list(Codec))
        limit = chance.choice((100, 1000, 20_000, 1_000_000))
        batches = list(encode(columns_of(new), codec=codec, max_batch_bytes=limit, impl=impl))
        read = [record for batch, _ in batches for record in as_new(batch)]

        assert read == plain(new), f"seed {seed}"
        for batch, count in batches:
            header = read_header(batch)
            verify(header, batch)
            check_produced(header)
            assert (header.record_count, header.codec) == (count, codec)
            assert header.max_timestamp == max(record.timestamp for record in iterate(batch))

    @pytest.mark.parametrize("codec", Codec)
    def test_a_batch_is_the_one_that_build_makes(self, impl: Impl, codec: Codec) -> None:
        new = make_records(random.Random(5), 100)
        options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11, "transactional": True}
        ((batch, count),) = encode(columns_of(new), codec=codec, max_batch_bytes=10_000_000, impl=impl, **options)

        assert count == 100
        assert batch == build(new, codec=codec, **options)

    @pytest.mark.parametrize("limit", [61, 62, 200, 1000, 5000])
    def test_no_batch_is_larger_than_the_limit_unless_a_single_record_is(self, impl: Impl, limit: int) -> None:
        chance = random.Random(limit)
        new = [NewRecord(chance.randbytes(chance.randrange(300)), timestamp=NOW + at) for at in range(500)]
        batches = list(encode(columns_of(new), max_batch_bytes=limit, impl=impl))

        assert all(len(batch) <= limit or count == 1 for batch, count in batches)
        assert [record for batch, _ in batches for record in as_new(batch)] == new
        # A batch is ended only by a record that might not have fitted.
        for (batch, _), (after, _) in pairwise(batches):
            assert (
                len(batch) + len(build(as_new(after)[:1])) - HEADER.size > limit - 5 * read_header(batch).record_count
            )

    def test_more_rows_than_are_written_at_a_time_are_divided_as_if_they_were_fewer(self, impl: Impl) -> None:
        new = [NewRecord(b"%06d" % at, timestamp=NOW) for at in range(150_000)]
        counts = [count for _, count in encode(columns_of(new), max_batch_bytes=30_000, impl=impl)]

        assert sum(counts) == 150_000
        assert len(set(counts[:-1])) == 1
        batches = list(encode(columns_of(new), max_batch_bytes=100_000_000, impl=impl))
        assert [record.value for batch, _ in batches for record in iterate(batch)] == [record.value for record in new]

    def test_sequence_numbers_go_on_from_batch_to_batch_and_begin_again_behind_the_largest(self, impl: Impl) -> None:
        new = [NewRecord(b"v" * 40)] * 4
        batches = encode(
            columns_of(new), producer_id=1, producer_epoch=0, base_sequence=2**31 - 2, max_batch_bytes=110, impl=impl
        )

        assert [read_header(batch).base_sequence for batch, _ in batches] == [2**31 - 2, 2**31 - 1, 0, 1]

    def test_a_batch_can_be_stamped_anew(self, impl: Impl) -> None:
        for codec in Codec:
            for batch, _ in encode(columns_of([NewRecord(b"value")]), codec=codec, impl=impl):
                batch[0:8] = bytes([0] * 7 + [5])
                assert read_header(batch).base_offset == 5

    def test_columns_that_are_not_there_are_null_and_no_rows_are_no_batches(self, impl: Impl) -> None:
        ((batch, _),) = encode(Columns(count=3), impl=impl)

        assert as_new(batch) == [NewRecord(None)] * 3
        assert list(encode(Columns(count=0), impl=impl)) == []

    def test_bytes_behind_a_null_are_not_written(self, impl: Impl) -> None:
        column = Binary(np.array([1, 3, 5]), np.frombuffer(b"xabcdx", np.uint8), np.array([2], np.uint8))
        ((batch, _),) = encode(Columns(count=2, key=column, value=column), impl=impl)

        assert as_new(batch) == [NewRecord(None), NewRecord(b"cd", b"cd")]

    @pytest.mark.parametrize("timestamps", [[2**63 - 1, 0], [-(2**63), -1], [-1, 2**63 - 2]])
    def test_timestamps_at_the_edge_of_64_bits_survive(self, impl: Impl, timestamps: list[int]) -> None:
        ((batch, _),) = encode(Columns(count=2, timestamp=np.array(timestamps)), impl=impl)

        assert [record.timestamp for record in iterate(batch)] == timestamps


class TestRefusal:
    def test_timestamps_too_far_apart_for_one_batch(self, impl: Impl) -> None:
        with pytest.raises(EncodeError, match="64 bits"):
            list(encode(Columns(count=2, timestamp=np.array([2**63 - 1, -2])), impl=impl))

    @pytest.mark.parametrize("offsets", [[0, 5], [2, 1], [-1, 1], [0], [0, 1, 2]])
    def test_offsets_that_lead_out_of_the_data(self, impl: Impl, offsets: list[int]) -> None:
        column = Binary(np.array(offsets), np.zeros(4, np.uint8))
        with pytest.raises(EncodeError, match=r"offsets of a column|of 1 rows"):
            list(encode(Columns(count=1, value=column), impl=impl))

    def test_a_header_without_a_key(self, impl: Impl) -> None:
        null = Binary(np.zeros(2, np.int32), np.empty(0, np.uint8), np.zeros(1, np.uint8))
        with pytest.raises(EncodeError, match="no key"):
            list(encode(Columns(count=1, headers=Headers(np.array([0, 1]), null, null)), impl=impl))

    def test_a_producer_id_that_does_not_fit(self, impl: Impl) -> None:
        with pytest.raises(EncodeError, match="out of range"):
            list(encode(Columns(count=1), producer_id=2**63, impl=impl))
