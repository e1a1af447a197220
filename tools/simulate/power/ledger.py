"""The ledger has what brokers have promised, and compares logs with it: after a restart, at an election, at the end."""

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Final

from penstock.broker.partitions.partition import Partition
from penstock.machines.producers import Producers
from penstock.storage.compaction.rewriting import is_filler
from penstock.storage.log.log import Log
from tools.simulate.power.broker import SimulatedBroker
from tools.simulate.power.contents import Item, Window, Windows, batches_of, items_of, windows_of
from tools.simulate.power.metadata import BROKERS

PREHISTORY: Final = 900
"""The producer whose records are older than the cluster."""


class Ledger:
    """`compacts`: a record may be gone from a log that has a newer one of the same key. `problems` has what was found
    to be wrong."""

    def __init__(self, *, compacts: bool) -> None:
        self.problems: list[str] = []
        self.promised: dict[int, Item] = {}
        """What was committed or acknowledged, by offset."""
        self.committed_end = 0
        self.deleted_to = 0
        """Up to where clients have asked for records to be deleted."""
        self.cut: set[int] = set()
        """Brokers that have cut their logs: a snapshot from before knows nothing of producers that had written much
        since then, and have answers to all that is left of theirs."""
        self._compacts = compacts
        self._told: dict[int, dict[int, Item]] = {broker_id: {} for broker_id in BROKERS}
        self._told_to = dict.fromkeys(BROKERS, 0)
        self._starts = dict.fromkeys(BROKERS, 0)
        self._noted: dict[tuple[int, int, int], int] = {}
        # How much was promised when each leader was elected: it may hear of that late.
        self._promised_at: dict[int, int] = {}

    def problem(self, text: str) -> None:
        self.problems.append(text)

    # What is promised

    def acknowledged(self, offset: int, item: Item) -> None:
        known = self.promised.setdefault(offset, item)
        if known != item:
            self.problem(f"offset {offset} was {_named(known)}, and then {_named(item)}")

    def note(self, broker: SimulatedBroker) -> None:
        """After each step: what its leader has committed, and how far its log has been deleted."""
        replica = broker.replica
        if replica is None:
            return
        if replica.log.failure is not None:
            self.problem(f"the log of broker {broker.broker_id} is offline: {replica.log.failure!r}")
        self._starts[broker.broker_id] = max(self._starts[broker.broker_id], replica.log.start_offset)
        if not replica.is_led:
            return
        key = (broker.broker_id, broker.broker_epoch, replica.leader_epoch)
        noted = self._noted.get(key)
        if noted is None:
            self.elected(replica.leader_epoch)
            count = self._promised_at[replica.leader_epoch]
            self._check_promises(f"the leader of epoch {replica.leader_epoch}", replica.log, count)
        if noted is None or replica.high_watermark > noted:
            for offset, item in items_of(replica.log, noted or 0, replica.high_watermark).items():
                self.acknowledged(offset, item)
            self.committed_end = max(self.committed_end, replica.high_watermark)
            self._noted[key] = replica.high_watermark

    def elected(self, leader_epoch: int) -> None:
        """A leader was elected, perhaps long before it hears of that: it has all that is promised by now."""
        self._promised_at.setdefault(leader_epoch, len(self.promised))

    def told(self, broker: SimulatedBroker, offset: int) -> None:
        """A broker counts on what its log has below an offset: it tells its leader so, or commits as one."""
        broker_id, replica = broker.broker_id, broker.replica
        assert replica is not None
        self._told[broker_id] |= items_of(replica.log, self._told_to[broker_id], offset)
        self._told_to[broker_id] = max(self._told_to[broker_id], offset)

    def cuts(self, broker: SimulatedBroker, offset: int) -> None:
        """A broker is told to cut its log: a crash meanwhile may leave what was cut, or not."""
        replica = broker.replica
        assert replica is not None
        held = next(batches_of(replica.log, offset), None) if offset < replica.log.end_offset else None
        end = offset if held is None else min(offset, held[0].base_offset)
        self.cut.add(broker.broker_id)
        told = self._told[broker.broker_id]
        self._told[broker.broker_id] = {at: item for at, item in told.items() if at < end}
        self._told_to[broker.broker_id] = min(self._told_to[broker.broker_id], end)

    def begins_anew(self, broker_id: int, offset: int) -> None:
        """A broker is told to throw its log away, or has lost its disk."""
        self._told[broker_id] = {}
        self._told_to[broker_id] = offset
        self._starts[broker_id] = min(self._starts[broker_id], offset)

    # What is found

    def check_recovered(self, broker: SimulatedBroker, replica: Partition) -> None:
        """A broker has opened its log."""
        broker_id, log = broker.broker_id, replica.log
        who = f"broker {broker_id}"
        found = items_of(log, 0)
        self._compare(f"{who} had told of", self._told[broker_id], found, log.start_offset)
        if not min(self._starts[broker_id], log.end_offset) <= log.start_offset <= max(self.deleted_to, 0):
            known = self._starts[broker_id], self.deleted_to
            self.problem(f"the log of {who} starts at {log.start_offset}, which should be in {known}")
        if replica.high_watermark > max(self.committed_end, log.start_offset):
            self.problem(f"{who} restored the high watermark {replica.high_watermark} of {self.committed_end}")
        if broker.directory.high_watermarks.damage is not None:
            self.problem(f"{who} blames the disk: {broker.directory.high_watermarks.damage}")
        self._check_log(who, replica, found)

    def check_settled(self, brokers: Sequence[SimulatedBroker], leader: Partition) -> None:
        """All have copied everything."""
        replicas = [replica for broker in brokers if (replica := broker.replica) is not None]
        self._check_promises("the last leader", leader.log)
        for broker, replica in zip(brokers, replicas, strict=True):
            who = f"broker {broker.broker_id}"
            self._check_promises(who, replica.log)
            self._check_log(who, replica, items_of(replica.log, 0))
            self._check_windows(broker.broker_id, replica)
            if replica is not leader:
                self._check_copy(who, replica, leader)

    def _check_promises(self, who: str, log: Log, count: int | None = None) -> None:
        """It has the first `count` of the promises, or all of them."""
        promised = dict(islice(self.promised.items(), count))
        self._compare(f"{who} lacks what was committed:", promised, items_of(log, 0), log.start_offset)
        if log.start_offset > self.deleted_to:
            self.problem(f"the log of {who} starts at {log.start_offset}, and {self.deleted_to} was asked for")

    def _compare(self, what: str, promised: dict[int, Item], found: dict[int, Item], start: int) -> None:
        newest = {item[0]: offset for offset, item in found.items()} if self._compacts else {}
        for offset, item in promised.items():
            if offset >= start and found.get(offset) != item and newest.get(item[0], -1) <= offset:
                there = _named(found[offset]) if offset in found else "nothing"
                self.problem(f"{what} {_named(item)} at {offset}, and there is {there}")
                return

    def _check_log(self, who: str, replica: Partition, found: dict[int, Item]) -> None:
        """What must be true of any log at any time."""
        log = replica.log
        for header, _ in batches_of(log, 0):
            epoch = log.epochs.at(max(header.base_offset, log.start_offset))
            if epoch != header.leader_epoch:
                self.problem(f"{who} has epoch {epoch} for a batch of epoch {header.leader_epoch}")
        numbers: dict[int, list[int]] = {}
        for _, value in found.values():
            assert value is not None
            producer_id, number = map(int, value.split()[:2])
            numbers.setdefault(producer_id, []).append(number)
        for producer_id, sent in numbers.items():
            dense = not self._compacts and producer_id != PREHISTORY
            if any(after <= before or (dense and after > before + 1) for before, after in pairwise(sent)):
                self.problem(f"{who} has of producer {producer_id} the numbers {sent}")

    def _check_windows(self, broker_id: int, replica: Partition) -> None:
        """What a broker knows of producers is what its next start would know, and what the log says. Of batches before
        the start a snapshot knows; compaction takes batches from the log."""
        log, known = replica.log, windows_of(replica.producers)
        rebuilt = windows_of(replica._load_producers(0))
        if (_last(known) != _last(rebuilt)) if self._compacts else (known != rebuilt):
            self.problem(f"broker {broker_id} knows of producers {known}, and would know {rebuilt} after a restart")
        folded = Producers()
        folded.fold((header for header, _ in batches_of(log, 0) if header.base_offset >= log.start_offset), 0)
        for number, batches in windows_of(folded).items():
            own = [batch for batch in known.get(number, []) if self._compacts or batch[2] >= log.start_offset]
            is_left_out = not own and broker_id in self.cut
            agrees = self._compacts or _ends_with(batches, own)
            if not is_left_out and (not own or own[-1][1] != batches[-1][1] or not agrees):
                self.problem(f"broker {broker_id} knows {own} of producer {number}, and the log has {batches}")

    def _check_copy(self, who: str, replica: Partition, leader: Partition) -> None:
        """A copy is the leader's log, byte for byte; each log is compacted by itself."""
        start = max(replica.log.start_offset, leader.log.start_offset)
        if self._compacts:
            copied, original = items_of(replica.log, start), items_of(leader.log, start)
            self._compare(f"{who} lacks", original, copied, start)
            self._compare(f"the leader of {who} lacks", copied, original, start)
        elif _bytes(replica.log, start) != _bytes(leader.log, start):
            spans = _spans(replica.log, start), _spans(leader.log, start)
            self.problem(f"{who} has {spans[0]} where its leader has {spans[1]}, or other bytes")


def _last(windows: Windows) -> Windows:
    return {number: [batch[:3] for batch in batches[-1:]] for number, batches in windows.items()}


def _ends_with(batches: list[Window], own: list[Window]) -> bool:
    return batches[-len(own) :] == own[-len(batches) :]


def _bytes(log: Log, start: int) -> bytes:
    """What is in a log from an offset on. Where that is within what compaction has left of batches, a copy that begins
    there has less of it."""
    return b"".join(
        b"nothing up to %d" % header.next_offset
        if header.base_offset <= start and is_filler(header) and header.producer_id < 0
        else view
        for header, view in batches_of(log, start)
    )


def _spans(log: Log, start: int) -> list[tuple[int, int]]:
    return [(header.base_offset, header.next_offset) for header, _ in batches_of(log, start)]


def _named(item: Item) -> str:
    return (item[1] or b"").split(b".")[0].decode().strip() + f" of {(item[0] or b'').decode()}"
