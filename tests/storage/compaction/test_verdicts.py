"""What stays of a batch."""

from penstock.protocol.batch import read_header
from penstock.protocol.compression import Codec
from penstock.protocol.control import ControlType, build_end_marker
from penstock.protocol.records import iterate
from penstock.storage.compaction.key_offsets import KeyOffsets
from penstock.storage.compaction.record_spans import read_keys, unpack
from penstock.storage.compaction.rewriting import build_filler, build_producer_filler
from penstock.storage.compaction.survey import Survey
from penstock.storage.compaction.verdicts import Fate, Verdicts
from tests.storage.sources import batch


def verdicts(
    *dirty: bytes, dirty_from: int = 100, cleaned_to: int = 1000, delete_before: int = 0, producers_before: int = 0
) -> Verdicts:
    """As they are when these batches were dirty."""
    newest = KeyOffsets(1000)
    for data in dirty:
        header = read_header(data)
        newest.add(read_keys(header, *unpack(header, data, 0)))
    newest.finish()
    return Verdicts(
        Survey(),
        newest,
        dirty_from=dirty_from,
        cleaned_to=cleaned_to,
        delete_before=delete_before,
        producers_before=producers_before,
    )


def judge(rules: Verdicts, data: bytes | bytearray) -> Fate | list[int]:
    """The fate of a batch, or the offsets that stay."""
    found = rules.judge(read_header(data), bytes(data), 0)
    return [record.offset for record in iterate(found)] if isinstance(found, bytearray) else found


def test_of_what_is_dirty_the_newest_of_each_key_stays() -> None:
    first, second = batch(100, (b"a", b"1"), (b"b", b"2")), batch(102, (b"a", b"3"), (b"c", b"4"))
    third = batch(104, (b"c", b"5"), (b"a", b"6"))
    rules = verdicts(first, second, third)
    assert judge(rules, first) == [101]
    assert judge(rules, second) is Fate.DROP
    assert judge(rules, third) is Fate.KEEP


def test_of_what_is_clean_that_goes_which_was_written_anew() -> None:
    rules = verdicts(batch(100, (b"a", b"new"), (None, b"no key")))
    assert judge(rules, batch(0, (b"a", b"1"), (b"b", b"2"), codec=Codec.LZ4)) == [1]
    assert judge(rules, batch(2, (b"a", b"1"))) is Fate.DROP
    assert judge(rules, batch(3, (b"c", b"1"), (b"d", None))) is Fate.KEEP
    assert judge(rules, batch(5, (b"c", b"1"), (None, b"2"))) == [5]


def test_tombstones_go_below_their_horizon_and_the_first_that_stays_is_known() -> None:
    rules = verdicts(delete_before=10)
    assert judge(rules, batch(8, (b"a", None), (b"b", b"1"))) == [9]
    assert judge(rules, batch(9, (b"a", None))) is Fate.DROP
    assert rules.first_tombstone == -1
    assert judge(rules, batch(11, (b"x", b"1"), (b"c", None))) is Fate.KEEP
    assert judge(rules, batch(13, (b"d", None))) is Fate.KEEP
    assert rules.first_tombstone == 12


def test_nothing_is_judged_from_where_the_memory_ended() -> None:
    data = batch(100, (b"a", b"1"))
    rules = verdicts(batch(100, (b"a", b"1"), (b"a", b"2")), cleaned_to=100)
    assert judge(rules, data) is Fate.KEEP
    assert judge(rules, batch(105, (None, b"no key"))) is Fate.KEEP


def test_what_nobody_can_read_stays() -> None:
    broken = bytearray(batch(0, (b"a", b"1")))
    broken[61] = 0x7F
    rules = verdicts(batch(100, (b"a", b"2")))
    assert judge(rules, broken) is Fate.KEEP
    dirty = bytearray(batch(200, (b"a", b"1")))
    rules.newest.add_unreadable(200)
    assert judge(rules, dirty) is Fate.KEEP


def test_the_last_word_of_a_producer_stays_as_a_filler_until_its_horizon() -> None:
    mine = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 3}
    data = batch(50, (b"a", b"1"), **mine)
    for before, fate in ((50, Fate.FILL), (51, Fate.DROP)):
        rules = verdicts(batch(100, (b"a", b"2")), producers_before=before)
        rules.survey.last_batches[7] = 50
        assert judge(rules, data) is fate
        assert judge(rules, batch(40, (b"a", b"1"), **mine)) is Fate.DROP
        filler = build_producer_filler(read_header(data))
        assert judge(rules, filler) is (Fate.KEEP if fate is Fate.FILL else Fate.DROP)
        assert judge(rules, build_filler(60, 90, 0)) is Fate.DROP


def test_a_marker_stays_with_the_records_of_its_transaction_and_until_its_horizon() -> None:
    def marker(offset: int) -> bytearray:
        return build_end_marker(
            ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=offset
        )

    mine = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 3, "transactional": True}
    rules = verdicts(batch(100, (b"a", b"2")), delete_before=50)
    assert judge(rules, batch(0, (b"a", b"1"), **mine)) is Fate.DROP
    assert judge(rules, marker(1)) is Fate.DROP, "nothing is left of it"
    assert judge(rules, batch(2, (b"b", b"1"), **mine)) is Fate.KEEP
    assert judge(rules, marker(3)) is Fate.KEEP
    assert rules.first_tombstone == -1, "it is no tombstone as long as it is of use"
    assert judge(rules, marker(4)) is Fate.DROP
    assert judge(rules, marker(60)) is Fate.KEEP
    assert rules.first_tombstone == 60


def test_a_range_is_dead_only_if_nothing_in_it_is_of_any_use() -> None:
    rules = verdicts(batch(100, (b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"4")), cleaned_to=110)
    assert rules.are_all_dead(100, 102)
    assert not rules.are_all_dead(100, 103)
    assert not rules.are_all_dead(99, 102), "clean"
    assert rules.are_all_dead(104, 110)
    assert not rules.are_all_dead(104, 111), "unknown"
    rules.survey.special.append(101)
    assert not rules.are_all_dead(100, 102)
    assert rules.are_all_dead(100, 101)
    rules.newest.add_unreadable(105)
    assert not rules.are_all_dead(100, 101)
