"""The ledger knows what has been committed, read and acknowledged, and says when that is no longer true.

It looks whenever one of these may have changed: at every election, commit, cut, crash, change of the metadata log,
append, answer and read.
"""

from typing import TYPE_CHECKING

from penstock.machines.cluster_records import NO_LEADER, PartitionImage
from penstock.machines.partition_leader import PartitionLeader
from tools.simulate.replication.disk import DiskLog, Entry

if TYPE_CHECKING:
    from tools.simulate.replication.replica import Key, Replica
    from tools.simulate.replication.world import World


class Truth:
    """Of one partition: every record that any replica took for committed, by its offset."""

    __slots__ = ("deleted_to", "ends", "entries", "gone_to", "read_to")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.deleted_to = 0
        """No record below this need be there: its deletion was asked for."""
        self.gone_to = 0
        """No record below this may be there: its deletion was acknowledged."""
        self.read_to = 0
        self.ends: dict[int, int] = {}
        """How far the leader of each epoch has committed."""

    def lacks(self, log: DiskLog, first: int, last: int) -> str:
        """What of these records, which are committed, a log does not have as they are."""
        first = max(first, log.start_offset)
        if log.start_offset > self.deleted_to:
            return f"the records from {self.deleted_to} to {log.start_offset}, which were not deleted"
        if log.slice(first, last) != self.entries[first:last]:
            return f"all committed records from {first} to {last}"
        return ""

    def lacks_deletion(self, log: DiskLog) -> str:
        return f"the deletion up to {self.gone_to}" if log.start_offset < self.gone_to else ""


class Ledger:
    __slots__ = ("_appended", "_epochs_led", "_leaders", "_truths", "_world", "acknowledgements")

    def __init__(self, world: "World") -> None:
        self._world = world
        self._truths: dict[Key, Truth] = {}
        self._leaders: dict[tuple[Key, int], int] = {}
        self._epochs_led: dict[tuple[Key, int], tuple[int, int]] = {}
        self._appended: dict[tuple[Key, int, int], int] = {}
        self.acknowledgements = 0

    def truth(self, key: "Key") -> Truth:
        found = self._truths.get(key)
        if found is None:
            found = self._truths[key] = Truth()
        return found

    # The metadata log

    def partition_changed(self, key: "Key", before: PartitionImage, now: PartitionImage) -> None:
        """Epochs grow, all that are in sync or eligible have everything, and the leader counts on them."""
        world = self._world
        if now.partition_epoch <= before.partition_epoch or now.leader_epoch < before.leader_epoch:
            world.problem(f"an epoch of the metadata log went back: {before}, then {now}")
        self._check_holders(key, now, 0)
        if now.leader != NO_LEADER:
            replica = world.nodes[now.leader].replicas.get(key)
            if replica is not None and replica.leader is not None:
                self.check_maximal(replica, replica.leader)

    def check_maximal(self, replica: "Replica", leader: PartitionLeader) -> None:
        """Who is in sync by the metadata log is in the maximal in-sync replicas of the leader."""
        image = self._world.metadata.partition(replica.key)
        if image is None or image.leader_epoch != leader.leader_epoch:
            return
        if not leader.maximal_isr.issuperset(image.isr):
            maximal = sorted(leader.maximal_isr)
            self._world.problem(f"{image.isr} are in sync, and {replica} commits with {maximal} alone")

    def _check_holders(self, key: "Key", image: PartitionImage, first: int) -> None:
        """Every replica that is in sync or eligible has on its disk, for good, all that is committed."""
        truth = self.truth(key)
        last = len(truth.entries)
        for broker in (*image.isr, *image.elr):
            if last > first and self._has_its_disk(broker):
                log = self._world.nodes[broker].logs.get(key)
                lacking = "a log" if log is None else truth.lacks(log, first, last)
                if not lacking and log is not None and log.flushed < last:
                    lacking = f"a flush of what follows {log.flushed}"
                if not lacking and log is not None:
                    lacking = truth.lacks_deletion(log)
                if lacking:
                    self._world.problem(f"broker {broker} is in sync or eligible, and lacks {lacking}: {image}")

    def _has_its_disk(self, broker: int) -> bool:
        """Whether the controller knows the disk that it has, and what may be missing there."""
        node = self._world.nodes[broker]
        return self._world.metadata.image.brokers[broker].home_folder == node.folder and not node.may_lack_unflushed

    def _is_counted_on(self, replica: "Replica") -> bool:
        image, broker = self._world.metadata.partition(replica.key), replica.node.id
        return image is not None and (broker in image.isr or broker in image.elr) and self._has_its_disk(broker)

    # Leaders

    def elected(self, replica: "Replica", leader: PartitionLeader) -> None:
        """No other broker has led in this epoch, and the log has all that was committed before it."""
        world, key, log, broker, epoch = (
            self._world, replica.key, replica.log, replica.node.id, leader.leader_epoch
        )  # fmt: skip
        if world.told is not None:
            world.tell(f"{replica} leads in epoch {epoch} from {log.end_offset} on, in sync {sorted(leader.isr)}")
        if self._leaders.setdefault((key, epoch), broker) != broker:
            world.problem(f"two brokers lead {key[1]} in epoch {epoch}")
        if self._epochs_led.get((key, broker), (-1, 0)) >= (epoch, replica.node.incarnation):
            world.problem(f"{replica} leads in epoch {epoch} after it has led in that or a later one")
        self._epochs_led[key, broker] = epoch, replica.node.incarnation
        truth = self.truth(key)
        last, lacking = len(truth.entries), ""
        if world.metadata.is_deposed(key, epoch):
            # It reads old metadata. What later leaders have committed or deleted it need not have.
            last = max((end for led, end in truth.ends.items() if led < epoch), default=0)
        else:
            lacking = truth.lacks_deletion(log)
        if lacking := lacking or truth.lacks(log, 0, last):
            world.problem(f"{replica} leads in epoch {epoch}, and lacks {lacking}")

    def state_changed(self, replica: "Replica", leader: PartitionLeader, image: PartitionImage) -> None:
        if image.partition_epoch < leader.partition_epoch:
            self._world.problem(f"{replica} went back from {leader.partition_epoch} to {image}")

    def appended(self, replica: "Replica", entry: Entry) -> None:
        """A leader appends a record: its epoch and its offset are those of no other."""
        epoch, value = entry
        if self._appended.setdefault((replica.key, epoch, replica.log.end_offset), value) != value:
            self._world.problem(f"{replica} appended a second record at {replica.log.end_offset} in epoch {epoch}")

    def acknowledged(self, replica: "Replica", offset: int, entry: Entry) -> None:
        self.acknowledgements += 1
        if self.truth(replica.key).entries[offset : offset + 1] != [entry]:
            self._world.problem(f"{replica} acknowledged {entry} at {offset}, which is not committed")

    # Any replica

    def committed(self, replica: "Replica", before: int, after: int) -> None:
        """A replica takes more for committed than before."""
        world, log = self._world, replica.log
        if after < before:
            world.problem(f"the high watermark of {replica} went back from {before} to {after}")
            return
        if after > log.end_offset:
            world.problem(f"the high watermark of {replica} is {after}, after the end {log.end_offset}")
            return
        truth = self.truth(replica.key)
        known, first = truth.entries, max(before, log.start_offset)
        count = len(known)
        if log.slice(first, min(after, count)) != known[first:after]:
            world.problem(f"{replica} has other records from {first} to {after} than were committed")
        elif after > count:
            if replica.leader is None or count < first:
                world.problem(f"{replica} knows of commits up to {after}, which no leader has made")
                return
            known += log.slice(count, after)
            self._check_commit(replica, replica.leader, truth, count)

    def _check_commit(self, replica: "Replica", leader: PartitionLeader, truth: Truth, first: int) -> None:
        """A leader has committed more: later leaders have it, and all that may become one."""
        world, key = self._world, replica.key
        last = truth.ends[leader.leader_epoch] = len(truth.entries)
        image = world.metadata.partition(key)
        if image is None:
            return
        self._check_holders(key, image, first)
        if image.leader_epoch == leader.leader_epoch:
            return
        for node in world.nodes.values():
            other = node.replicas.get(key)
            if other is None or other.leader is None or other.leader.leader_epoch <= leader.leader_epoch:
                continue
            if lacking := truth.lacks(other.log, first, last):
                world.problem(f"{replica} commits, and {other}, which leads after it, lacks {lacking}")

    def copied(self, replica: "Replica", offset: int, entries: list[Entry]) -> None:
        """A follower appends what its leader has."""
        log = replica.log
        if offset != log.end_offset:
            self._world.problem(f"{replica} ends at {log.end_offset}, and is to append from {offset} on")
        elif entries and entries[0][0] < log.last_record_epoch:
            self._world.problem(f"{replica} is to append {entries[0]} after {log.last_record_epoch}")

    def cut(self, replica: "Replica", end: int) -> None:
        """A follower is about to throw away what it has from here on."""
        world = self._world
        if end < replica.high_watermark:
            world.problem(f"{replica} cuts its log to {end}, of which {replica.high_watermark} are committed")
        elif end < len(self.truth(replica.key).entries) and self._is_counted_on(replica):
            world.problem(f"{replica} is in sync or eligible, and cuts off committed records from {end} on")

    def crashed(self, replica: "Replica") -> None:
        """A log has lost its end."""
        if replica.log.end_offset < len(self.truth(replica.key).entries) and self._is_counted_on(replica):
            self._world.problem(f"{replica} is in sync or eligible, and a crash has left {replica.log.end_offset}")

    # Clients

    def deleted(self, replica: "Replica") -> None:
        truth = self.truth(replica.key)
        truth.deleted_to = max(truth.deleted_to, replica.log.start_offset)

    def deletion_acknowledged(self, replica: "Replica", offset: int) -> None:
        """Every replica that may lead has deleted what lies before the offset."""
        truth = self.truth(replica.key)
        truth.gone_to = max(truth.gone_to, offset)
        image = self._world.metadata.partition(replica.key)
        if image is not None:
            self._check_holders(replica.key, image, 0)

    def read(self, replica: "Replica", leader: PartitionLeader) -> None:
        """A consumer reads all there is; it must be what others have read, and nothing less unless the leader has been
        deposed without knowing it."""
        world, log, truth = self._world, replica.log, self.truth(replica.key)
        end = leader.high_watermark
        if log.slice(log.start_offset, end) != truth.entries[log.start_offset : end]:
            world.problem(f"a reader at {replica} got other records than were committed")
        if not world.metadata.is_deposed(replica.key, leader.leader_epoch):
            if end < truth.read_to:
                world.problem(f"a reader at {replica} got records up to {end}; another had got up to {truth.read_to}")
            truth.read_to = max(truth.read_to, end)

    def check_end(self) -> None:
        """All replicas are in sync: their logs are equal, and have everything."""
        world = self._world
        for key, (image, _) in world.metadata.view.partitions.items():
            truth = self.truth(key)
            logs = [world.nodes[broker].logs[key] for broker in image.replicas]
            start = max(log.start_offset for log in logs)
            contents = [log.slice(start, log.end_offset) for log in logs]
            if any(content != contents[0] for content in contents):
                world.problem("logs of replicas that are in sync are different")
            for broker, log in zip(image.replicas, logs, strict=True):
                if lacking := truth.lacks(log, 0, len(truth.entries)) or truth.lacks_deletion(log):
                    world.problem(f"broker {broker} lacks {lacking} in the end")
