"""What tasks of the tests wait for. It imports little, for each of Spark's processes imports it anew."""

from typing import Final

from penstock.client.admin.offsets import LATEST, list_offsets
from penstock.client.errors import unwrap
from penstock.client.metadata import TopicPartition
from penstock.spark.link import connect

PADDING: Final = " " * 8192
"""What makes rows so large that Spark does not gather many of them before it hands them on."""


def wait_for_messages(bootstrap: str, topic: str, count: int = 1) -> None:
    """Until the first partition has so many."""
    link, key = connect({"bootstrap.servers": bootstrap}), TopicPartition(topic, 0)
    while unwrap(link.run(list_offsets(link.cluster, {key: LATEST})))[key].offset < count:
        pass
