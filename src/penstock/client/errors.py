"""The errors that a client raises; each message says what was wrong and what to do."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from penstock.protocol.error_codes import ErrorCode

K = TypeVar("K")
V = TypeVar("V")


class ClientError(Exception):
    """Base of all that the client raises. `outcome_unknown`: the broker may or may not have done what it was asked."""

    def __init__(self, message: str, *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class ConnectionLostError(ClientError):
    """A connection could not be opened, or ended before the reply came."""


class TimedOutError(ClientError):
    """A reply, or the success of an operation with all its tries, did not come in time."""


class BadReplyError(ClientError):
    """The peer sent what is no reply to what it was asked: it is no Kafka broker, or speaks TLS."""


class AuthenticationError(ClientError):
    """Authentication failed: a password or a certificate was refused. Trying again is of no use."""


class UnsendableError(ClientError):
    """The request cannot be written in any version that the broker offers."""


class NoBrokerError(ClientError):
    """No broker can be reached. `may_pass`: this is an outage that is waited for; otherwise the client fails fast, and
    no broker has answered it yet."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class BufferFullError(ClientError):
    """A producer holds as many messages as its memory allows, and the brokers do not take them off it in time."""


class CorruptBatchError(ClientError):
    """The batch at `offset` of `partition` cannot be read, for the reason in `why`. Reading can go on at `next_offset`;
    None: that is unknown."""

    def __init__(
        self,
        message: str,
        *,
        partition: tuple[str, int] | None = None,
        offset: int = -1,
        next_offset: int | None = None,
        why: object = None,
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.why = why


class MissingMessageError(ClientError):
    """There is no message at an offset. `is_gone`: it was deleted, or never was for users; else it may still come."""

    def __init__(self, message: str, *, is_gone: bool) -> None:
        super().__init__(message)
        self.is_gone = is_gone


class NoPositionError(ClientError):
    """There is nowhere to begin reading `partition`: nothing was committed, or what was is gone, and no other start was
    given (auto.offset.reset=none)."""

    def __init__(self, message: str, partition: tuple[str, int]) -> None:
        super().__init__(message)
        self.partition = partition


class PushError(ClientError):
    """A function that messages are pushed to has failed with the message of `message_id`; `__cause__` says why."""

    def __init__(self, message_id: object, error: BaseException) -> None:
        super().__init__(
            f"the push has ended: the callback failed with message {message_id}: {error!r}; the message comes again "
            "with the next push or poll, unless it was committed before (at_most_once)"
        )
        self.message_id = message_id


class CommitFailedError(ClientError):
    """The group has given the partitions to other members, which go on from what was committed before."""


class BrokerError(ClientError):
    """The broker answered with an error code."""

    def __init__(
        self, code: ErrorCode, about: str, message: str | None = None, *, outcome_unknown: bool = False
    ) -> None:
        self.code = code
        self.about = about
        self.broker_message = message
        told = [part for part in (message, _ADVICE.get(code)) if part] or [code.name.lower().replace("_", " ")]
        text = "; ".join(part.rstrip(".") for part in told)
        # Some messages of brokers name what they are about, in the same words.
        named = text if text.lower().startswith(about.lower()) else f"{about}: {text}"
        super().__init__(
            f"{named} ({code.name})",
            outcome_unknown=outcome_unknown or code in IN_DOUBT,
        )


class UnknownTopicError(BrokerError):
    """There is no such topic; `near` are existing names that look like it."""

    def __init__(self, topic: str, near: Sequence[str] = ()) -> None:
        question = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}", f"there is no such topic{question}")
        self.topic = topic
        self.near = tuple(near)


class UnknownPartitionError(BrokerError):
    """The topic has no partition of this number."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition {partition} of topic {topic!r}",
            "the topic has one partition, number 0; use that or add partitions"
            if count == 1
            else f"the topic has {count} partitions, numbered from 0; use one of them or add partitions",
        )
        self.topic = topic
        self.partition = partition
        self.count = count


class UnknownGroupError(BrokerError):
    """There is no such group; `near` are existing ones that look like it."""

    def __init__(self, group: str, near: Sequence[str] = ()) -> None:
        question = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        super().__init__(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}", f"there is no such group{question}")
        self.group = group
        self.near = tuple(near)


# The broker gave up waiting, or failed on the way: the change may still be made, now or later.
IN_DOUBT = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


def broker_error(code: int, about: str, message: str | None = None, *, outcome_unknown: bool = False) -> BrokerError:
    """The error for a code from the wire; a newer broker may send one that this client does not know."""
    try:
        return BrokerError(ErrorCode(code), about, message, outcome_unknown=outcome_unknown)
    except ValueError:
        return BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            about,
            f"error code {code}, which this client does not know{f': {message}' if message else ''}",
        )


def outcome(code: int, about: str, message: str | None, value: V) -> V | ClientError:
    """`value`, or the error that the code stands for. That another broker has to be asked concerns the whole request:
    it is raised."""
    if code == ErrorCode.NONE:
        return value
    error = broker_error(code, about, message)
    if error.code is ErrorCode.NOT_CONTROLLER:
        raise error
    return error


def topic_outcome(topic: str, code: int, message: str | None, value: V) -> V | ClientError:
    """As `outcome`, for a request about a topic."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return UnknownTopicError(topic)
    return outcome(code, f"topic {topic!r}", message, value)


def group_outcome(group: str, code: int, message: str | None, value: V) -> V | ClientError:
    """As `outcome`, for a request about a group."""
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return UnknownGroupError(group)
    return outcome(code, f"group {group!r}", message, value)


def unanswered(about: str) -> ClientError:
    return BadReplyError(f"{about}: the broker's answer does not mention it; its log may say why", outcome_unknown=True)


def unwrap(outcomes: Mapping[K, V | ClientError]) -> dict[K, V]:
    """The values of operations on many things, if all of them succeeded; else the first error is raised."""
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, ClientError)]
    if errors:
        if len(errors) > 1:
            errors[0].add_note(f"{len(errors) - 1} more of {len(outcomes)} failed")
        raise errors[0]
    return {key: outcome for key, outcome in outcomes.items() if not isinstance(outcome, ClientError)}


_ADVICE = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed in a way it did not expect: its log says more",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not hold this offset: list the partition's offsets",
    ErrorCode.CORRUPT_MESSAGE: "the batch was damaged on its way: send it again",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader now: wait until one of its replicas is back",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the leader has changed: ask the new one",
    ErrorCode.REQUEST_TIMED_OUT: "the broker could not finish in time and may still do so: look before you ask again",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller batches, or raise the topic's max.message.bytes",
    ErrorCode.NETWORK_EXCEPTION: "the broker lost its connection to another one",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is just being loaded: ask again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker coordinates the group now: wait until one does",
    ErrorCode.NOT_COORDINATOR: "another broker coordinates the group now: ask that one",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic's name has 1 to 249 letters, digits, dots, underscores or dashes, and is neither '.' nor '..'"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for: bring one back",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "written, but by fewer replicas than min.insync.replicas asks for: look before you send it again"
    ),
    ErrorCode.INVALID_GROUP_ID: "a group has a name that is not empty",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members have no assignor in common: give them one that all know (partition.assignment.strategy)"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker takes only session.timeout.ms between its group.min.session.timeout.ms and its maximum"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full: stop a member first, or raise the broker's group.max.size",
    ErrorCode.FENCED_INSTANCE_ID: "another member has joined with the same group.instance.id: give each its own",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members, and only they may do this: stop them first",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is just sharing out its partitions anew: ask again",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "you may not do this with the group: ask for an ACL that allows it",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first, or wait until their sessions have ended",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read this topic: stop them first",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "you may not do this with the topic: ask for an ACL that allows it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "you may not do this with the cluster: ask for an ACL that allows it",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not speak this version of the request: upgrade it",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or use the topic that is there",
    ErrorCode.NOT_CONTROLLER: "another broker is the controller now: ask that one",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk failed: its log says more",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted, and perhaps created again",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader has changed: ask the new one",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the broker has not heard of the leader change yet: ask again",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "use another codec",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "over the quota: wait before you ask again",
}
