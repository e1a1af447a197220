"""`ClientStats` is what a client knows about itself at a moment; producers and consumers know more."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True, frozen=True, kw_only=True)
class ClientStats:
    """What `stats()` of an admin returns, and part of what producers and consumers return.

    >>> ClientStats(connections=1, requests_in_flight=0, unreachable={}, last_error=None).connections
    1
    """

    connections: int
    """Open connections to brokers; a client may have several to one broker."""
    requests_in_flight: int
    """Requests that brokers have not answered yet; long polls are among them."""
    unreachable: Mapping[str, float]
    """Brokers that cannot be reached, by address, with the seconds since they were lost."""
    last_error: str | None
    """The last error that a connection or a broker caused; None if there was none. It may have passed since."""
    brokers_passed_over: int = 0
    """How often a broker was silent for about a second, so that another one was asked."""
    leader_hints: int = 0
    """How often a broker that refused a request has named the leader, so that metadata had not to be asked for."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ProducerStats(ClientStats):
    """What `Producer.stats()` returns.

    >>> common = dict(connections=1, requests_in_flight=0, unreachable={}, last_error=None)
    >>> ProducerStats(**common, buffered_bytes=0, buffered_messages=0).buffered_messages
    0
    """

    buffered_bytes: int
    """Bytes of memory of the messages that wait here or are on their way; at most `buffer_memory`."""
    buffered_messages: int
    """Messages of which it is not known yet whether they were written."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ConsumerStats(ClientStats):
    """What `Consumer.stats()` returns.

    >>> common = dict(connections=2, requests_in_flight=1, unreachable={}, last_error=None)
    >>> ConsumerStats(**common, buffered_bytes=0, partitions=3, rebalances=1, skipped_batches=0).rebalances
    1
    """

    buffered_bytes: int
    """Bytes that were fetched ahead of polls; at most `queued_max_bytes`."""
    partitions: int
    """Partitions that are read now."""
    rebalances: int
    """How often the group has assigned partitions to this consumer; 0 without a group."""
    skipped_batches: int
    """Batches that could not be read and were passed over (on_corrupt="skip")."""
