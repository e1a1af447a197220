"""Starts a broker, and fills topics with rows of a kilobyte."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.processes import Server
from benchmarks.systems import Penstock

if TYPE_CHECKING:
    import numpy as np

SIZE: Final = 1024
PARTITIONS: Final = 2


@dataclass(slots=True, frozen=True)
class Filled:
    server: Server
    topic: str
    rows: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic}

    def beside(self, topic: str, rows: int) -> "Filled":
        """Another topic of the same broker, by the name of its payload."""
        made = replace(self, topic=topic, rows=rows)
        Penstock().make_topic(self.server, topic, PARTITIONS)
        asyncio.run(_fill(made))
        return made


@contextmanager
def filled(folder: Path, rows: int) -> Iterator[Filled]:
    """A topic of orders. The broker runs where the system puts it, for Spark has all cores too."""
    (folder / "broker").mkdir()
    with Penstock().start(folder / "broker", ()) as server:
        yield Filled(server, "", 0).beside("orders", rows)


async def _fill(topic: Filled) -> None:
    import numpy as np
    import pyarrow as pa

    from penstock.client import Producer

    chance = np.random.default_rng(1)
    async with Producer(topic.bootstrap, profile="throughput") as producer:
        for start in range(0, topic.rows, 10_000):
            count = min(10_000, topic.rows - start)
            values = PAYLOADS[topic.topic](chance, start, count)
            keys = [b"%d" % number for number in range(start, start + count)]
            (await producer.send_batch(topic.topic, pa.table({"key": keys, "value": values}))).raise_for_errors()


def _orders(chance: "np.random.Generator", start: int, count: int) -> list[bytes]:
    """JSON as an application might have it, of which a quarter is chance: ids and amounts."""
    ids = chance.bytes(count * 128).hex()
    return [_order(start + number, ids[number * 256 : (number + 1) * 256]) for number in range(count)]


def _order(number: int, chance: str) -> bytes:
    pieces = [chance[place : place + 16] for place in range(64, 256, 16)]
    items = ", ".join(f'{{"sku": "{each[:12]}", "amount": {int(each[12:], 16)}, "currency": "EUR"}}' for each in pieces)
    text = f'{{"order": {number}, "customer": "{chance[:32]}", "session": "{chance[32:64]}", "items": [{items}]}}'
    return text.encode().ljust(SIZE)[:SIZE]


def _chance(chance: "np.random.Generator", start: int, count: int) -> list[bytes]:
    """What no codec makes smaller, as if it were encrypted."""
    data = chance.bytes(count * SIZE)
    return [data[place : place + SIZE] for place in range(0, count * SIZE, SIZE)]


def _alike(chance: "np.random.Generator", start: int, count: int) -> list[bytes]:
    """One value over and over, which costs a codec next to nothing."""
    return [b"x" * SIZE] * count


PAYLOADS: Final[dict[str, Callable[["np.random.Generator", int, int], list[bytes]]]] = {
    "orders": _orders,
    "chance": _chance,
    "alike": _alike,
}
