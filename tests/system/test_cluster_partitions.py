"""Several hundred partitions on three brokers of one host: spread over all of them, and led again after kills."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.machines import cluster_records
from penstock.machines.cluster import ClusterImage
from penstock.metadata.sqlite import SqliteStore
from penstock.protocol.schemas.metadata import MetadataRequest, MetadataResponse
from penstock.supervisor.serving import METADATA_FILE
from tests.broker.harness import Client
from tests.system.processes import PATIENCE_SECONDS, Patience
from tests.system.supervised import SupervisorProcess, spare_ports

TOPICS = [f"topic-{number}" for number in range(3)]
PARTITIONS = 200
ALL = len(TOPICS) * PARTITIONS
SHARE = ALL // 3
# Of an entry, for each partition that it is about.
MAX_BYTES = 20


def test_six_hundred_partitions_are_led_again_after_a_broker_and_the_controller_were_killed(tmp_path: Path) -> None:
    data, ports = tmp_path / "data", spare_ports(3)
    with SupervisorProcess(data, ports) as supervisor:
        create(f"127.0.0.1:{ports[2]}")
        pids, controller = supervisor.pids(), wait_until_all_are_led(ports)
        other = next(number for number in pids if number != controller)
        os.kill(pids[other], signal.SIGKILL)
        os.kill(pids[controller], signal.SIGKILL)
        for killed in (other, controller):
            supervisor.wait_for_another(killed, pids[killed])
        wait_until_all_are_led(ports)
    image, sizes = asyncio.run(read_log(data / METADATA_FILE))
    elections = {number: set[int]() for number in pids}
    for topic in image.topics.values():
        for partition in topic.partitions:
            elections[partition.leader].add(partition.leader_epoch)
    assert min(elections[other]) > 0
    assert min(elections[controller]) > 0
    assert max(sizes) <= ALL * MAX_BYTES


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
        made.result(PATIENCE_SECONDS)


def wait_until_all_are_led(ports: Iterable[int]) -> int:
    """Until each broker says so, itself, of equal shares; returns the controller."""
    patience, response = Patience(), MetadataResponse()
    for port in ports:
        while patience.lasts(f"the broker on port {port} to know leaders of all partitions"):
            response = asyncio.run(ask(port))
            leaders = Counter(partition.leader_id for topic in response.topics for partition in topic.partitions)
            if leaders == {0: SHARE, 1: SHARE, 2: SHARE}:
                break
            time.sleep(0.05)
    return response.controller_id


async def ask(port: int) -> MetadataResponse:
    try:
        client = await Client.open(("127.0.0.1", port))
    except ConnectionError:
        # It is not back yet.
        return MetadataResponse()
    response: MetadataResponse = await client.ask(MetadataRequest(topics=None))
    client.close()
    return response


async def read_log(path: Path) -> tuple[ClusterImage, list[int]]:
    """The image of all entries, and their sizes."""
    store, image, sizes = SqliteStore(str(path)), ClusterImage(), list[int]()
    await store.open()
    while entries := await store.entries(len(sizes)):
        for _, entry in entries:
            sizes.append(len(entry))
            image.apply_all(cluster_records.decode(entry).records)
    await store.close()
    return image, sizes
