"""What happens in a schedule beside the messages of brokers: clients ask, and things go wrong."""

from typing import TYPE_CHECKING, Final

from penstock.machines.cluster import MIN_ISR
from penstock.machines.config_changes import ConfigChange, ConfigOperation
from penstock.protocol.error_codes import ErrorCode
from tools.simulate.replication import states
from tools.simulate.replication.metadata import TOPIC
from tools.simulate.replication.replica import LAG_MS

if TYPE_CHECKING:
    from tools.simulate.replication.node import Node
    from tools.simulate.replication.world import World

SESSION_MS: Final = 120
FAULTY_MS: Final = 1600
TURN_MS: Final = 150

SHARES: Final = {
    "crash": 26,
    "crash_all": 5,
    "pause": 15,
    "lose_session": 7,
    "slow_down": 7,
    "deafen": 7,
    "cut": 8,
    "change_controller": 7,
    "change_min_isr": 7,
    "prefer": 9,
    "delete_topic": 2,
}
"""How often each fault comes, in parts of all."""


class Faults:
    __slots__ = ("_values", "is_of_turns", "may_lose_disk", "world")

    def __init__(self, world: "World") -> None:
        self.world = world
        self.may_lose_disk = world.keeps_two and not world.is_unsynced
        self.is_of_turns = world.chance(0.04)
        self._values = 0

    def begin(self) -> None:
        world = self.world
        world.after(10, None, self._client)
        if self.is_of_turns:
            world.after(200, None, self._take_turns)
            return
        names, shares = list(SHARES), list(SHARES.values())
        at = 30
        while at < FAULTY_MS:
            (name,) = world.random.choices(names, shares)
            world.after(at, None, self._fault, name)
            at += 20 + int(world.chance_of() * 160)

    def _fault(self, name: str) -> None:
        node = self.world.random.choice(list(self.world.nodes.values()))
        getattr(self, name)(node)

    # Clients

    def _client(self) -> None:
        """A producer and a consumer, at any broker that takes itself for the leader."""
        world, draw = self.world, self.world.chance_of
        for node in world.nodes.values():
            if not node.serves:
                continue
            for replica in node.replicas.values():
                if replica.leader is None:
                    continue
                choice = draw()
                if choice < 0.55:
                    self._values += 1
                    world.after(1, node, replica.produce, self._values, choice < 0.4)
                elif choice < 0.75:
                    world.after(1, node, replica.read)
                elif choice < 0.77:
                    world.after(1, node, replica.delete_records)
        if world.now < FAULTY_MS:
            world.after(5 + int(draw() * 35), None, self._client)

    # Brokers

    def crash(self, node: "Node") -> None:
        world = self.world
        if not node.is_up:
            return
        self._stop(node, is_clean=world.chance(0.15), with_its_machine=self._may_lose_power(node))
        down = int(world.chance_of() * (3 * SESSION_MS if world.chance(0.6) else SESSION_MS / 2))
        if self.may_lose_disk and world.chance(0.3):
            self.may_lose_disk = False
            world.tell(f"broker {node.id} has lost its disk")
            node.lose_disk()
        world.after(SESSION_MS, None, world.metadata.leave, node, node.epoch)
        world.after(down + 1, None, self.restart, node)

    def crash_all(self, _: "Node") -> None:
        for node in self.world.nodes.values():
            self.crash(node)
        self.world.reach(states.ALL_DOWN)

    def restart(self, node: "Node") -> None:
        if not node.is_up:
            self.world.tell(f"broker {node.id} starts")
            node.start()

    def _stop(self, node: "Node", *, is_clean: bool, with_its_machine: bool = False) -> None:
        how = "stops" if is_clean else "loses its power" if with_its_machine else "crashes"
        self.world.tell(f"broker {node.id} {how}")
        node.crash(is_clean=is_clean, with_its_machine=with_its_machine and not is_clean)

    def _may_lose_power(self, node: "Node") -> bool:
        """Without flushes only one machine at a time may, and not the last that has everything."""
        world = self.world
        if not world.is_unsynced or any(each.may_lack_unflushed for each in world.nodes.values()):
            return False
        images = [image for image, _ in world.metadata.view.partitions.values()]
        return world.chance(0.6) and all({*image.isr, *image.elr} - {node.id} for image in images)

    def pause(self, node: "Node") -> None:
        world = self.world
        if node.is_up and node.paused_until <= world.now:
            length = int(world.chance_of() * 3 * SESSION_MS)
            world.tell(f"broker {node.id} is paused for {length} ms")
            node.paused_until = world.now + length
            if length > SESSION_MS:
                world.after(SESSION_MS, None, world.metadata.leave, node, node.epoch)

    def lose_session(self, node: "Node") -> None:
        if node.is_up:
            self.world.metadata.lose_session(node)
            self.world.after(1 + int(self.world.chance_of() * 30), node, self.world.metadata.rejoin, node)

    def slow_down(self, node: "Node") -> None:
        """It fetches seldom."""
        node.slow_until = self.world.now + 2 * LAG_MS

    def deafen(self, node: "Node") -> None:
        """It reads no metadata."""
        length = int(self.world.chance_of() * 500)
        self.world.tell(f"broker {node.id} reads no metadata for {length} ms")
        node.deaf_until = self.world.now + length
        if self.world.chance(0.3):
            self.lose_session(node)

    def _take_turns(self, turn: int = 0) -> None:
        """Two brokers are up in turns, so that each leads without having heard of the other's records."""
        world = self.world
        one = world.nodes[1 + turn % 2]
        for node in world.nodes.values():
            if node.is_up and node is not one:
                self._stop(node, is_clean=world.chance(0.5))
                world.metadata.lose_session(node)
        world.after(TURN_MS // 4, None, self.restart, one)
        if world.now < FAULTY_MS - TURN_MS:
            world.after(TURN_MS, None, self._take_turns, turn + 1)

    # What is between them

    def cut(self, node: "Node") -> None:
        """Messages to, from, or between two brokers do not arrive."""
        world = self.world
        other = world.random.choice([each for each in world.nodes if each != node.id])
        pairs = {(node.id, other), (other, node.id)}
        if world.chance(0.3):
            pairs = {(node.id, other)}
        elif world.chance(0.3):
            pairs = {pair for each in world.nodes for pair in ((node.id, each), (each, node.id))}
        world.cuts |= pairs
        world.tell(f"cut: {sorted(pairs)}")
        world.after(int(world.chance_of() * 400), None, world.cuts.difference_update, pairs)

    # What an operator asks for

    def change_controller(self, _: "Node") -> None:
        self.world.metadata.change_controller()

    def change_min_isr(self, _: "Node") -> None:
        world, metadata = self.world, self.world.metadata
        topic = metadata.image.topics.get(TOPIC)
        if topic is None:
            return
        before = int(topic.configs[MIN_ISR])
        wanted = world.random.choice((2, 3) if world.keeps_two else (1, 2, 3))
        had_elr = any(partition.elr for partition in topic.partitions)
        change = ConfigChange(MIN_ISR, ConfigOperation.SET, str(wanted))
        if metadata.decide(lambda controller: controller.change_configs("topic", TOPIC, [change])) is ErrorCode.NONE:
            world.min_isr = wanted
            if wanted > before:
                world.reach(states.MIN_RAISED)
            elif wanted < before and had_elr:
                world.reach(states.MIN_LOWERED)

    def prefer(self, _: "Node") -> None:
        if self.world.metadata.decide(lambda controller: controller.elect_leader(TOPIC, 0)) is ErrorCode.NONE:
            self.world.reach(states.PREFERRED)

    def delete_topic(self, _: "Node") -> None:
        metadata = self.world.metadata
        if metadata.decide(lambda controller: controller.delete_topic(TOPIC)) is ErrorCode.NONE:
            self.world.tell("the topic was deleted")
            self.world.reach(states.RECREATED)
            metadata.wants_topic = True
            metadata.reconcile_later()
