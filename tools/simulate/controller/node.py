"""A node is one process of a broker, reduced to what it does for the cluster: it starts, runs, stops or dies."""

import asyncio
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.cluster.controlling import Controlling, NotControllerError
from penstock.broker.cluster.racing import race
from penstock.broker.cluster.registration import BrokerRegistration
from penstock.broker.cluster.state import ClusterState
from penstock.machines.cluster import ImageChange, difference
from penstock.machines.controller import Controller
from penstock.machines.decisions import ControllerDecision, Refused
from penstock.metadata.memory import MemoryStore
from penstock.metadata.store import Contact, SessionLostError, StoreError
from tools.simulate.controller.faulty_store import FaultyStore
from tools.simulate.controller.ledger import Asked

if TYPE_CHECKING:
    from tools.simulate.controller.world import World

HAND_OVER_SECONDS = 10.0


class Node:
    def __init__(self, world: "World", broker_id: int, *, was_clean: bool) -> None:
        self.world = world
        self.broker_id = broker_id
        self.was_clean = was_clean
        self.owner = world.new_owner(f"broker {broker_id}", self.check)
        self.context = self.owner.context()
        self.running = asyncio.Event()
        self.running.set()
        self.is_dead = False
        self.is_stopping = False
        self.has_started = False
        self.believes = False
        self._stop = asyncio.Event()
        self.store = FaultyStore(MemoryStore(world.shared, world.session_seconds), self)
        self.cluster = ClusterState(self.store, self._changed)
        self.controlling = Controlling(self.store, self.cluster, world.rules, node_id=broker_id)
        self.registration = BrokerRegistration(
            self.store,
            self.cluster,
            node_id=broker_id,
            folder=f"folder-{broker_id}",
            rack=None,
            listeners=lambda: {"PLAINTEXT": ("127.0.0.1", 9092 + broker_id)},
            fenced=self._fenced,
        )
        self._image = self.cluster.image.copy()
        self.task: asyncio.Task[None] = world.loop.create_task(self._live(), context=self.context)
        # A task that is cancelled before it begins does nothing by itself.
        self.task.add_done_callback(self._ended)

    @property
    def is_up(self) -> bool:
        return self.has_started and not (self.is_dead or self.is_stopping)

    # Faults

    def crash(self) -> None:
        """Nothing that it does from now on is seen by others."""
        if not (self.is_dead or self.task.done()):
            self.is_dead = True
            self.store.die()
            if not self.running.is_set():
                self.go_on()
            self.task.cancel()

    def pause(self) -> None:
        self.running.clear()
        self.world.loop.hold(self.owner)
        self.store.cut()

    def go_on(self) -> None:
        self.running.set()
        self.world.loop.release(self.owner)
        self.store.seen_at = self.world.loop.time()
        self.store.mend()

    def stop(self) -> None:
        self.is_stopping = True
        self.world.loop.call_soon(self._stop.set, context=self.context)

    # What it does

    async def _live(self) -> None:
        try:
            if not await self._start():
                return
            tasks = [
                asyncio.create_task(work)
                for work in (self.cluster.follow(), self.registration.keep(), self.controlling.run())
            ]
            try:
                await race(self._serve(), _first_of(tasks))
                if not self._stop.is_set():
                    self.world.problem(f"a task of broker {self.broker_id} ended")
                await self._hand_over()
                await _end(tasks[2:])
                await self.controlling.close()
            finally:
                await _end(tasks)
                self.cluster.close()
            await self.store.close()
        except Exception as error:
            if not self.is_dead:
                at = traceback.extract_tb(error.__traceback__)[-1]
                self.world.problem(f"broker {self.broker_id} failed in {at.name}: {error!r}")
        except asyncio.CancelledError:
            if not (self.is_dead or self.world.is_over):
                self.world.problem(f"a task of broker {self.broker_id} was cancelled by itself")
            raise
        finally:
            self.believes = False

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not self.is_dead:
            self.is_dead = self.is_stopping = True
        self.world.node_ended(self)

    async def _start(self) -> bool:
        """Whether that was possible: the process ends when it cannot reach the store."""
        try:
            await self.store.open()
            await self.cluster.load()
            self._image = self.cluster.image.copy()
            await self.registration.register(was_clean=self.was_clean)
        except SessionLostError:
            self.world.reach("a session was lost at the start")
            await self.store.close()
            return False
        return True

    async def _serve(self) -> None:
        await self.registration.served()
        self.has_started = True
        self.world.note(self, "serves")
        await self._stop.wait()

    async def _hand_over(self) -> None:
        """Ask the controller to be relieved, as a broker does that stops."""
        world, epoch = self.world, self.registration.broker_epoch
        if self._stop.is_set() and world.random.random() < 0.5 and (node := world.believer()):
            answer = node.ask(
                Asked("relieve", None, node), lambda c: c.shut_down_broker(self.broker_id, broker_epoch=epoch)
            )
            try:
                async with asyncio.timeout(HAND_OVER_SECONDS):
                    await answer
                world.reach("a broker was relieved before it stopped")
            except (Refused, StoreError, TimeoutError):
                pass

    def ask(self, asked: Asked, decide: Callable[[Controller], ControllerDecision[Any]]) -> "asyncio.Future[object]":
        """Let a client's request arrive. There is no answer from the dead."""
        answer: asyncio.Future[object] = self.world.loop.create_future()
        self.world.ledger.asked.append(asked)

        def arrived() -> None:
            if not self.is_dead:
                self.controlling.submit(decide).add_done_callback(decided)

        def decided(done: "asyncio.Future[object]") -> None:
            error = None if done.cancelled() else done.exception()
            if self.is_dead:
                return
            if done.cancelled() or (isinstance(error, NotControllerError) and error.outcome_unknown):
                asked.outcome = "unknown"
                self.world.reach("a client was told that the outcome is unknown")
            elif error is not None:
                asked.outcome, asked.error = "not made", str(error)
                if isinstance(error, NotControllerError):
                    self.world.reach("a client was told that the controller is another")
            else:
                asked.outcome = "made"
                result = done.result()
                if isinstance(result, range):
                    asked.mark = ("ids", result.stop)
                    self.world.ledger.ids_given(result)
            self.world.note(self, f"answers {asked.kind} {asked.name}: {asked.outcome} {asked.error[:60]}")
            self.world.ledger.answered(asked)
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
                answer.exception()
            else:
                answer.set_result(None if done.cancelled() else done.result())

        self.world.loop.call_soon(arrived, context=self.context)
        return answer

    # What must be true of it

    def check(self) -> None:
        """After each of its callbacks."""
        if self.is_dead:
            return
        controlling, world = self.controlling, self.world
        if controlling.is_controller:
            if world.leaders.setdefault(controlling.controller_epoch, self) is not self:
                world.problem(f"two brokers believe to be the controller of epoch {controlling.controller_epoch}")
            if not self.believes and any(node.believes for node in world.nodes.values()):
                world.reach("two brokers believed to be the controller at once")
        self.believes = controlling.is_controller
        # All that a broker does about it, it does before any time passes.
        if self.is_up and self.store.seen_at < world.loop.time():
            contact = self.store.contact
            if contact is not Contact.GOOD and controlling.is_controller:
                world.problem(f"broker {self.broker_id} is the controller while contact is {contact.value}")
            if contact is Contact.LOST and not self.registration.is_fenced:
                world.problem(f"broker {self.broker_id} is not fenced while contact is lost")
        if self.has_started and not self.registration.is_fenced:
            known = self.cluster.image.brokers.get(self.broker_id)
            if known is None or known.broker_epoch != self.registration.broker_epoch:
                world.problem(f"broker {self.broker_id} serves, and its registration is not applied: {known}")

    async def _changed(self, change: ImageChange) -> None:
        world, index = self.world, self.cluster.index
        if self.cluster.image != world.ledger.images[index]:
            world.problem(f"the image of broker {self.broker_id} at {index} is not what the log says")
        self._check_told(change)
        self._image = self.cluster.image.copy()
        if delay := world.slow_following():
            await asyncio.sleep(delay)

    def _check_told(self, change: ImageChange) -> None:
        """What a broker is told to have changed has all that changed."""
        expected = difference(self._image, self.cluster.image)
        if not (
            expected.created == change.created
            and expected.deleted.keys() == change.deleted.keys()
            and expected.configured <= change.configured
            and expected.configs <= change.configs
            and expected.brokers <= change.brokers
            and expected.controller <= change.controller
            and all(found <= change.partitions.get(topic, set()) for topic, found in expected.partitions.items())
        ):
            self.world.problem(f"broker {self.broker_id} was told {change}, and {expected} has changed")

    def _fenced(self, is_fenced: bool) -> None:
        self.world.note(self, "is fenced" if is_fenced else "is no longer fenced")
        if not is_fenced:
            self.world.reach("a session was lost, and the broker registered again")


async def _first_of(tasks: "list[asyncio.Task[None]]") -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()


async def _end(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
