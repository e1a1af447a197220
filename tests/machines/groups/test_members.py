"""Members as values, and as the log keeps them."""

from penstock.machines.groups.members import Member

MEMBER = Member("c-1", "one", "c", "/10.0.0.1", 60_000, 10_000, (("range", b"r"), ("sticky", b"s")), b"plan", True)


def test_a_member_says_something_under_each_of_its_protocols() -> None:
    assert MEMBER.metadata("range") == b"r"
    assert MEMBER.metadata("sticky") == b"s"
    assert MEMBER.metadata("other") is None
    assert MEMBER.metadata(None) is None


def test_of_a_stored_member_the_chosen_protocol_is_known() -> None:
    restored = Member.restored(MEMBER.stored("sticky"), "sticky")
    assert restored.protocols == (("sticky", b"s"),)
    assert restored.stored("sticky") == MEMBER.stored("sticky")
    assert not restored.is_new
