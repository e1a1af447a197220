"""Idempotent producers of the simulated partition: they number what they send, and send again what has no answer."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.broker.partitions.partition import Partition
from penstock.protocol.batch import split
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.records import NewRecord, build
from tools.simulate.power.contents import Item

IN_FLIGHT: Final = 5
_AGAIN: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
"""Refusals after which a producer sends a batch again."""


class Witness(Protocol):
    """What is told of the answers to producers."""

    def acknowledged(self, offset: int, item: Item) -> None: ...

    def problem(self, text: str) -> None: ...


@dataclass(slots=True, eq=False)
class Sent:
    items: list[Item]
    data: bytes


@dataclass(slots=True, eq=False)
class SimulatedProducer:
    """Has at most five batches in flight. After a refusal, when its connection is lost or when there is another leader,
    it sends all of them again, in order, before it sends anything new. It never returns to a former leader."""

    producer_id: int
    witness: Witness
    in_flight: deque[Sent] = field(default_factory=deque)
    is_cut_off: bool = False
    leader_epoch: int = -1
    _number: int = 0
    _connection: object = field(default_factory=object)

    def send(self, partition: Partition, keys: list[bytes], size: int, now_ms: int) -> None:
        """Send a batch with a record for each key."""
        if partition.leader_epoch < self.leader_epoch:
            return
        if self.is_cut_off or partition.leader_epoch > self.leader_epoch:
            self.resend(partition, now_ms)
            return
        if len(self.in_flight) == IN_FLIGHT:
            return
        values = [b"%d %d " % (self.producer_id, self._number + i) + b"." * size for i in range(len(keys))]
        records = [NewRecord(value, key, timestamp=now_ms) for key, value in zip(keys, values, strict=True)]
        data = build(records, producer_id=self.producer_id, producer_epoch=0, base_sequence=self._number)
        self._number += len(keys)
        self.in_flight.append(Sent(list(zip(keys, values, strict=True)), bytes(data)))
        self._transmit(partition, self.in_flight[-1], now_ms)

    def resend(self, partition: Partition, now_ms: int) -> None:
        """To the leader that the producer has found."""
        self.is_cut_off = False
        self.leader_epoch = partition.leader_epoch
        self._connection = object()
        for sent in list(self.in_flight):
            self._transmit(partition, sent, now_ms)

    def _transmit(self, partition: Partition, sent: Sent, now_ms: int) -> None:
        [(header, view)] = split(bytearray(sent.data))
        waiter = _Waiter(self, sent, self._connection)
        partition.append(header, view, wait_for_all=True, waiter=waiter, now_ms=now_ms)

    def answered(self, sent: Sent, base_offset: int, connection: object) -> None:
        for offset, item in enumerate(sent.items, base_offset):
            self.witness.acknowledged(offset, item)
        if connection is self._connection and sent in self.in_flight:
            self.in_flight.remove(sent)

    def refused(self, code: ErrorCode, message: str, connection: object) -> None:
        if connection is self._connection:
            # After a refusal the batches that follow are out of order.
            is_first, self.is_cut_off = not self.is_cut_off, True
            if is_first and code not in _AGAIN:
                self.witness.problem(f"producer {self.producer_id} was refused: {code.name}, {message}")


@dataclass(slots=True)
class _Waiter:
    producer: SimulatedProducer
    sent: Sent
    connection: object

    @property
    def deadline(self) -> float:
        return math.inf

    def appended(self, base_offset: int, log_start: int) -> None:
        self.producer.answered(self.sent, base_offset, self.connection)

    def refused(self, code: ErrorCode, message: str, base_offset: int = -1) -> None:
        self.producer.refused(code, message, self.connection)
