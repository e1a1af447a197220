"""Members as values, and as the log keeps them."""

from dataclasses import replace

import pytest

from penstock.machines.groups.members import Member
from penstock.machines.groups.records import GroupStored, encode

MEMBER = Member("c-1", "one", "c", "/10.0.0.1", 60_000, 10_000, (("range", b"r"), ("sticky", b"s")), b"plan", True)


def test_a_member_says_something_under_each_of_its_protocols() -> None:
    assert MEMBER.metadata("range") == b"r"
    assert MEMBER.metadata("sticky") == b"s"
    assert MEMBER.metadata("other") is None
    assert MEMBER.metadata(None) is None


@pytest.mark.parametrize("protocol", ["range", "sticky"])
def test_a_member_takes_no_more_in_the_log_than_it_says(protocol: str) -> None:
    member = replace(MEMBER, protocols=(("range", b"r" * 100), ("sticky", b"s" * 50)), client_id="clïent")
    empty = GroupStored("g", "consumer", 1, protocol, "c-1", 0, ())
    sizes = [len(encode(record)[1] or b"") for record in (empty, replace(empty, members=(member.stored(protocol),)))]
    taken = sizes[1] - sizes[0] - len(member.assignment)
    assert taken == member.log_bytes - (0 if protocol == "range" else 50)


def test_of_a_stored_member_the_chosen_protocol_is_known() -> None:
    restored = Member.restored(MEMBER.stored("sticky"), "sticky")
    assert restored.protocols == (("sticky", b"s"),)
    assert restored.stored("sticky") == MEMBER.stored("sticky")
    assert not restored.is_new
