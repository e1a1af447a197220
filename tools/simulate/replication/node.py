"""A broker of the simulation: it has a disk, a registration, an image as of some entry of the metadata log, and
replicas."""

from typing import TYPE_CHECKING

from tools.simulate.replication import states
from tools.simulate.replication.disk import DiskLog
from tools.simulate.replication.replica import Key, Replica

if TYPE_CHECKING:
    from tools.simulate.replication.metadata import View
    from tools.simulate.replication.world import World


class Node:
    """`logs` are its disk; the rest is gone after a crash."""

    __slots__ = (
        "deaf_until", "epoch", "folder", "has_lost_disk", "id", "incarnation", "index", "is_up", "logs",
        "may_lack_unflushed", "paused_until", "replicas", "serves", "session", "slow_until", "was_clean", "world"
    )  # fmt: skip

    def __init__(self, world: "World", broker_id: int) -> None:
        self.world = world
        self.id = broker_id
        self.folder = f"folder {broker_id}"
        self.has_lost_disk = False
        self.logs: dict[Key, DiskLog] = {}
        self.replicas: dict[Key, Replica] = {}
        self.incarnation = 0
        """Grows with every start and crash: what was begun before is void."""
        self.is_up = False
        self.was_clean = False
        """Whether its logs are as the cluster has known them: after a clean stop, and once it is registered."""
        self.may_lack_unflushed = False
        """Whether its machine has lost its power since it was last registered."""
        self.paused_until = self.slow_until = self.deaf_until = 0
        self.epoch = self.index = self.session = 0
        self.serves = False

    def start(self) -> None:
        self.is_up = True
        self.incarnation += 1
        self.index = self.paused_until = self.deaf_until = 0
        self.serves = False
        self.replicas = {key: Replica(self, key, log) for key, log in self.logs.items()}
        self.world.metadata.join(self)

    def crash(self, *, is_clean: bool = False, with_its_machine: bool = False) -> None:
        world = self.world
        self.is_up = self.serves = False
        self.incarnation += 1
        self.was_clean = is_clean
        self.may_lack_unflushed |= with_its_machine
        for replica in self.replicas.values():
            if is_clean:
                replica.log.synced = replica.log.end_offset
                replica.log.saved_high_watermark = replica.high_watermark
            elif replica.log.crash(world.random, with_its_machine=with_its_machine):
                world.reach(states.POWER_LOST if replica.log.is_unsynced else states.TAIL_LOST)
                world.ledger.crashed(replica)
        self.replicas = {}

    def lose_disk(self) -> None:
        """It must be down."""
        self.logs = {}
        self.folder += " again"
        self.has_lost_disk = True
        self.was_clean = False

    def read_metadata(self, view: "View", index: int) -> None:
        """Its image is as of an entry of the metadata log now."""
        if index <= self.index:
            return
        self.index = index
        known = view.brokers.get(self.id)
        if known is not None and known.broker_epoch == self.epoch:
            self.serves = self.was_clean = True
            self.may_lack_unflushed = False
            if not known.is_alive:
                self.world.metadata.rejoin(self)
        if not self.serves:
            return
        for key in [key for key in self.logs if key not in view.partitions]:
            del self.logs[key]
            self.replicas.pop(key, None)
        for key, (image, min_isr) in view.partitions.items():
            if self.id in image.replicas:
                replica = self.replicas.get(key)
                if replica is None:
                    log = self.logs[key] = DiskLog(is_unsynced=self.world.is_unsynced)
                    replica = self.replicas[key] = Replica(self, key, log)
                replica.image_changed(image, min_isr)
