"""Faults have names here: each hits a host in a role that the seed draws, lasts for a while, and ends.

A fault is a generator: it breaks something, yields how many seconds that is to last, and mends it when it goes on.
"""

import heapq
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from tools.chaos.clients.journal import Journal
from tools.chaos.disk_faults import fail_sync, fill, flip_bits, lose_power, slow_syncs, wipe
from tools.chaos.network import HOSTS, Way, alone, both_ways, deaf, mute, ring
from tools.chaos.scene import BROKERS, HOST_ROLES, Course, Fault, Role, Scene

RESTART_SECONDS: Final = 60.0
HOUR_MS: Final = 3600 * 1000
# Less than a day, more than a day, and more than the week for which topics keep their records.
JUMPS_HOURS: Final = (2, 20, 40, 24 * 9, 24 * 400)


def kill(scene: Scene) -> Course:
    broker = scene.stage.brokers[scene.host]
    broker.kill()
    # It may be back before its session has ended, and before the others have heard that it was away.
    yield scene.chance.uniform(0, scene.session_seconds + 3)
    broker.start()


def kill_all(scene: Scene) -> Course:
    for broker in scene.stage.brokers.values():
        broker.kill()
    yield scene.chance.uniform(0, 3)
    for broker in scene.chance.sample(list(scene.stage.brokers.values()), len(HOSTS)):
        broker.start()


def lose_host(scene: Scene) -> Course:
    """Broker and ZooKeeper of a host."""
    broker, node = scene.stage.brokers[scene.host], scene.ensemble.nodes[scene.host - 1]
    broker.kill()
    node.kill()
    yield scene.chance.uniform(0, scene.session_seconds + 3)
    node.start()
    broker.start()


def pause_shortly(scene: Scene) -> Course:
    yield from _pause(scene, 1, scene.session_seconds - 3)


def pause_for_long(scene: Scene) -> Course:
    yield from _pause(scene, scene.session_seconds + 2, scene.session_seconds + 6)


def _pause(scene: Scene, shortest: float, longest: float) -> Course:
    broker = scene.stage.brokers[scene.host]
    broker.pause()
    yield scene.chance.uniform(shortest, longest)
    broker.resume()


def cut(ways: Callable[[Scene], set[Way]], scene: Scene) -> Course:
    scene.stage.network.cut(ways(scene))
    yield scene.chance.uniform(scene.session_seconds, scene.session_seconds + 5)
    scene.stage.network.mend()


def restart_all(scene: Scene) -> Course:
    """One after the other, each in order, and the next one when the cluster is whole again."""
    for number in scene.chance.sample(HOSTS, len(HOSTS)):
        broker = scene.stage.brokers[number]
        broker.stop()
        broker.start()
        scene.stage.wait_until_whole(RESTART_SECONDS)
    yield 0


def kill_zookeeper(scene: Scene) -> Course:
    node = scene.ensemble.nodes[scene.host - 1]
    node.kill()
    yield scene.chance.uniform(0, scene.session_seconds + 3)
    node.start()


def kill_client(scene: Scene) -> Course:
    """Another of its kind takes its place."""
    kind = scene.crew.kill_one(scene.chance)
    yield scene.chance.uniform(0, 3)
    scene.crew.start(kind)


def jump(scene: Scene) -> Course:
    """The wall clock of one broker is wrong, and then right again."""
    hours = scene.chance.choice(JUMPS_HOURS) * scene.chance.choice((1, -1))
    scene.shim.set("clock_offset_ms", hours * HOUR_MS)
    yield scene.chance.uniform(5, 10)
    scene.shim.heal()
    scene.told.append(f"the clock was wrong by {hours} hours")


def recreate(scene: Scene) -> Course:
    """A topic is deleted while clients use it, and another created by its name."""
    crew = scene.crew
    places = [(crew.topic, number) for number in range(crew.partitions)]
    pause, since = scene.chance.uniform(0, 2), time.monotonic()
    scene.stage.recreate_topic(crew.topic, crew.partitions, pause=pause, patience=RESTART_SECONDS)
    with Journal("stage", crew.folder / "stage.jsonl") as journal:
        journal.recreated(places, since)
    yield 0


def kill_and_cut(scene: Scene) -> Course:
    """While the broker is away, one of the two other hosts is cut off: for a while there is no majority of brokers."""
    scene.broker.kill()
    yield scene.chance.uniform(0, 2)
    scene.stage.network.cut(alone(scene.chance.choice([each for each in HOSTS if each != scene.host])))
    yield scene.chance.uniform(1, 4)
    scene.broker.start()
    yield scene.chance.uniform(0, 2)
    scene.stage.network.mend()


def mix(scene: Scene) -> Course:
    """Two faults of different groups, on different hosts: the second comes while the first lasts, or soon after it."""
    groups = scene.chance.sample(sorted(MIXED), 2)
    names = [scene.chance.choice(MIXED[group]) for group in groups]
    second = Scene(scene.stage, scene.crew, _another_host(scene, FAULTS[names[1]]), scene.chance, scene.told)
    scene.told.append(f"{names[0]} on host {scene.host}, {names[1]} on host {second.host}")
    courses = [FAULTS[names[0]].run(scene), FAULTS[names[1]].run(second)]
    began = time.monotonic()
    due = [(0.0, 0), (scene.chance.uniform(0, scene.session_seconds), 1)]
    while due:
        at, number = heapq.heappop(due)
        yield max(began + at - time.monotonic(), 0)
        if (seconds := next(courses[number], None)) is not None:
            heapq.heappush(due, (time.monotonic() - began + seconds, number))


def _another_host(scene: Scene, fault: Fault) -> int:
    host = scene.draw(scene.chance.choice(fault.roles))
    return host if host != scene.host else scene.chance.choice([each for each in HOSTS if each != scene.host])


def _other_link(scene: Scene) -> set[Way]:
    return both_ways(scene.host, scene.chance.choice([each for each in HOSTS if each != scene.host]))


def _one_way(scene: Scene) -> set[Way]:
    return scene.chance.choice((mute, deaf))(scene.host)


FAULTS: Final = {
    "kill": Fault("kill -9 of a broker", BROKERS, kill, is_for_all=True),
    "stop-short": Fault("SIGSTOP, shorter than the session", BROKERS, pause_shortly, is_for_all=True),
    "stop-long": Fault("SIGSTOP, longer than the session", BROKERS, pause_for_long, is_for_all=True),
    "cut-majority": Fault(
        "one host cut from the two others", HOST_ROLES, partial(cut, lambda scene: alone(scene.host))
    ),
    "cut-link": Fault("two hosts cut from each other, both see the third", HOST_ROLES, partial(cut, _other_link)),
    "cut-one-way": Fault("what one host sends, or is sent, vanishes", HOST_ROLES, partial(cut, _one_way)),
    "cut-ring": Fault(
        "each host can send to one other alone",
        HOST_ROLES,
        partial(cut, lambda scene: ring(scene.chance.choice((1, -1)))),
    ),
    "kill-all": Fault("kill -9 of all brokers at once", BROKERS, kill_all),
    "lose-host": Fault("kill -9 of a broker and its host's ZooKeeper", HOST_ROLES, lose_host),
    "wipe": Fault("kill -9 of a broker, and an empty disk", BROKERS, wipe),
    "restart": Fault("all brokers restarted in order, one by one", BROKERS, restart_all),
    "zookeeper": Fault("kill -9 of ZooKeeper's leader", (Role.ZOOKEEPER_LEADER,), kill_zookeeper),
    "client": Fault("kill -9 of a client", BROKERS, kill_client),
    "disk-full": Fault("a broker's disk is full", BROKERS, fill),
    "sync-fails": Fault("a sync of a broker fails", BROKERS, fail_sync),
    "sync-slow": Fault("every sync of a broker takes up to 0.8 s longer", BROKERS, slow_syncs),
    "bit-flip": Fault("kill -9 of a broker, and flipped bits in two of its logs", BROKERS, flip_bits),
    "power": Fault("all brokers lose their power at once", BROKERS, lose_power, takes_power=True),
    "clock": Fault("a broker's wall clock jumps, and back", BROKERS, jump),
    "recreate": Fault("the topic is deleted and created again", BROKERS, recreate),
    "kill-cut": Fault("kill -9 of a leader, and another host cut off while it is away", (Role.LEADER,), kill_and_cut),
    "mixed": Fault("two of these at once", BROKERS, mix),
}

MIXED: Final = {
    "crash": ("kill", "stop-short", "stop-long", "sync-fails"),
    "cut": ("cut-majority", "cut-link", "cut-one-way"),
    "disk": ("disk-full", "sync-slow"),
    # One disk may be lost, and no more.
    "loss": ("wipe", "bit-flip"),
    "rest": ("zookeeper", "client", "clock"),
}
"""Faults that may be mixed, of which two of one group would undo each other's mending or break the promise."""


def perform(fault: Fault, scene: Scene) -> None:
    """From the first harm to the end of mending."""
    for seconds in fault.run(scene):
        time.sleep(seconds)
