"""Drafts change copies."""

from penstock.machines.groups.changes import Instant, MemberInvited
from penstock.machines.groups.classic import ClassicGroup
from penstock.machines.groups.draft import Draft, answered
from penstock.machines.groups.members import Waiter
from penstock.machines.groups.records import GroupStored
from penstock.machines.groups.settings import GroupSettings
from penstock.protocol.schemas.groups import HeartbeatResponse

NOW = Instant(5, 1000)


def test_what_is_decided_shows_in_the_draft_and_not_in_the_group() -> None:
    group = ClassicGroup("g")
    draft = Draft(group, NOW, GroupSettings())
    stored = GroupStored("g", "consumer", 4, None, None, 1000, ())
    draft.event(MemberInvited("g", "m", 7))
    draft.store(stored)
    assert draft.group.invited == {"m": 7}
    assert draft.group.generation == 4
    assert group == ClassicGroup("g")
    assert draft.decision().changes == (MemberInvited("g", "m", 7), stored)


def test_who_waited_is_answered_only_if_it_is_still_there() -> None:
    draft = Draft(ClassicGroup("g"), NOW, GroupSettings())
    draft.answer(None, HeartbeatResponse())
    draft.answer(Waiter(None, 3), HeartbeatResponse())
    assert draft.decision().replies == ()
    draft.answer(Waiter("token", 3), HeartbeatResponse())
    draft.reply("caller", HeartbeatResponse(), after_commit=False)
    assert [(reply.token, reply.after_commit) for reply in draft.decision().replies] == [
        ("token", True),
        ("caller", False),
    ]


def test_an_answer_alone_changes_nothing() -> None:
    decision = answered("caller", HeartbeatResponse())
    assert decision.changes == ()
    assert decision.replies[0].after_commit
