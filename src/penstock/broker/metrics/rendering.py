"""Rendering writes all metrics of a broker as one page, a slice at a time, so that requests get their turns between."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.broker.metrics.catalogue import (
    BROKER_FAMILIES,
    GROUP_FAMILIES,
    PARTITION_FAMILIES,
    TOPIC_FAMILIES,
    Sources,
)
from penstock.broker.metrics.exposition import family, pairs

if TYPE_CHECKING:
    from penstock.broker.partitions.partition import Partition
    from penstock.broker.services import Services

SLICE_PARTITIONS: Final = 100
# The partitions that a page has at most. Series of the partitions beyond are left out, and of their topics.
MAX_PARTITIONS: Final = 10_000


async def render(sources: Sources) -> list[bytes]:
    """The page in pieces. It takes many turns of the loop, so its numbers are not of one moment."""
    pieces = []
    for text in slices(sources):
        if text:
            pieces.append(text.encode())
        await asyncio.sleep(0)
    return pieces


def slices(sources: Sources) -> Iterator[str]:
    """The page in pieces, which may be empty: each is the work of one turn."""
    for families in BROKER_FAMILIES.values():
        for item in families:
            yield family(item.head, item.read(sources))
    yield from _partition_slices(sources.services.partitions.replicas()[:MAX_PARTITIONS])
    yield from _group_slices(sources.services)


def _partition_slices(partitions: "list[Partition]") -> Iterator[str]:
    """Each partition is looked at once, so that its numbers fit together, though each stands in another family."""
    sums: dict[str, list[int]] = {}
    columns: list[list[str]] = [[] for _ in PARTITION_FAMILIES]
    series = [
        (column.append, item.head.name, item.read) for column, item in zip(columns, PARTITION_FAMILIES, strict=True)
    ]
    names = PARTITION_FAMILIES[0].head.labels
    for first in range(0, len(partitions), SLICE_PARTITIONS):
        for partition in partitions[first : first + SLICE_PARTITIONS]:
            so_far = sums.setdefault(partition.topic, [0] * len(TOPIC_FAMILIES))
            for number, item in enumerate(TOPIC_FAMILIES):
                so_far[number] += item.read(partition)
            labels = pairs(names, (partition.topic, str(partition.index)))
            for append, name, read in series:
                append(f"{name}{{{labels}}} {read(partition)}\n")
        yield ""
    for number, item in enumerate(TOPIC_FAMILIES):
        yield family(item.head, (((topic,), values[number]) for topic, values in sums.items()))
    for item, column in zip(PARTITION_FAMILIES, columns, strict=True):
        yield str(item.head) + "".join(column)


def _group_slices(services: "Services") -> Iterator[str]:
    columns: list[list[str]] = [[] for _ in GROUP_FAMILIES]
    names = GROUP_FAMILIES[0].head.labels
    for lags in services.meters.group_lags.slices(services):
        for lag in lags:
            labels = pairs(names, (lag.group, lag.topic, str(lag.partition)))
            for column, item in zip(columns, GROUP_FAMILIES, strict=True):
                if (value := item.read(lag)) is not None:
                    column.append(f"{item.head.name}{{{labels}}} {value!r}\n")
        yield ""
    for item, column in zip(GROUP_FAMILIES, columns, strict=True):
        yield str(item.head) + "".join(column)
