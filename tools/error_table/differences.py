"""Where Penstock answers otherwise than Apache Kafka, and why."""

from typing import NamedTuple

from tools.error_table.cells import BROKERS, UP, Table


class Difference(NamedTuple):
    request: str
    up: tuple[int, ...]
    """With how many brokers up."""
    ours: str | None
    """None where the request is not made, since an earlier one was refused."""
    reason: str


DIFFERENCES = (
    Difference(
        "Fetch from a follower",
        UP[:-1],
        "NOT_LEADER_OR_FOLLOWER",
        "Consumers read from leaders: none is told to read from a follower, and one that does by mistake is sent on",
    ),
    Difference(
        "CreateTopics with three replicas",
        UP[1:],
        "INVALID_REPLICATION_FACTOR",
        "A topic is not begun with replicas on brokers that are away: it would be short of in-sync replicas at once",
    ),
    Difference(
        "JoinGroup of a new member, first",
        UP[-1:],
        "COORDINATOR_NOT_AVAILABLE",
        "A member is written down when it joins, and outlives the coordinator. Apache Kafka writes it down when the "
        "group has its assignment, so that SyncGroup gets this answer",
    ),
    Difference("JoinGroup of a new member", UP[-1:], "COORDINATOR_NOT_AVAILABLE", "As above"),
    Difference("SyncGroup of a new member", UP[-1:], None, "As above: there is no new member"),
)


def with_differences(kafka: Table) -> Table:
    """What is to be expected of Penstock."""
    answers = {up: dict(told) for up, told in kafka.answers.items()}
    for request, states, ours, _ in DIFFERENCES:
        for up in states:
            assert request in answers[up], f"nothing is known of {request} with {up} of {BROKERS} brokers up"
            if ours is None:
                del answers[up][request]
            else:
                assert answers[up][request] != ours, f"{request} with {up} of {BROKERS} brokers up is no difference"
                answers[up][request] = ours
    return Table("Penstock", kafka.versions, kafka.sends, answers)
