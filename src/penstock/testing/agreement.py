"""Says what is missing until the brokers of a cluster agree: on their controller, on who is alive, who leads and who is
in sync."""

from collections.abc import Mapping

from penstock.broker.broker import Broker
from penstock.broker.services import Services
from penstock.machines.cluster import ClusterImage
from penstock.protocol.error_codes import ErrorCode


def missing_controller(brokers: Mapping[int, Broker], size: int) -> str | None:
    """The brokers are those that take part, of a cluster of this size. None if they agree on a controller."""
    at_work = {
        number: broker.services.controlling.controller_epoch
        for number, broker in brokers.items()
        if broker.services.controlling.is_controller
    }
    if not at_work:
        return "there is no controller"
    controller = max(at_work, key=lambda number: at_work[number])
    for number, broker in brokers.items():
        image = broker.services.image
        if (image.controller_id, image.controller_epoch) != (controller, at_work[controller]):
            return f"broker {number} does not know yet that the controller is broker {controller}"
    return None


def missing_leaders(brokers: Mapping[int, Broker], size: int) -> str | None:
    """None if the brokers that take part agree on the controller, on who is alive and who leads, and do so."""
    missing = missing_controller(brokers, size)
    if missing is not None:
        return missing
    newest = max(broker.services.cluster.index for broker in brokers.values())
    for number, broker in brokers.items():
        if broker.services.cluster.index < newest:
            return f"broker {number} has not read all of the metadata"
    image = next(iter(brokers.values())).services.image
    return _missing_members(brokers, image, size) or _missing_leaders(brokers, image)


def missing_replicas(brokers: Mapping[int, Broker], size: int) -> str | None:
    """None if, besides, every replica on a broker that takes part is in sync."""
    missing = missing_leaders(brokers, size)
    if missing is not None:
        return missing
    for topic in next(iter(brokers.values())).services.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            for replica in partition.replicas:
                if replica in brokers and replica not in partition.isr:
                    return f"the replica of partition {index} of {topic.name} on broker {replica} is not in sync"
    return None


def _missing_members(brokers: Mapping[int, Broker], image: ClusterImage, size: int) -> str | None:
    for number in range(size):
        known, broker = image.brokers.get(number), brokers.get(number)
        if broker is None and known is not None and known.is_alive:
            return f"broker {number} counts as alive"
        if broker is not None and (known is None or not known.is_alive or known.broker_epoch != broker.broker_epoch):
            return f"broker {number} is not registered"
    return None


def _missing_leaders(brokers: Mapping[int, Broker], image: ClusterImage) -> str | None:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            name = f"partition {index} of {topic.name}"
            if partition.leader in brokers:
                if not _leads(brokers[partition.leader].services, topic.name, index):
                    return f"broker {partition.leader} does not lead {name} yet"
            elif partition.leader >= 0:
                return f"{name} is led by broker {partition.leader}, which takes no part"
            elif brokers.keys() & set(partition.replicas):
                return f"{name} has no leader"
    return None


def _leads(services: Services, topic: str, index: int) -> bool:
    return not isinstance(services.partitions.get(topic, index), ErrorCode)
