"""A page of metrics as Prometheus sees it: fetched by a real HTTP client, read by Prometheus' own parser."""

import asyncio
import http.client
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.broker.harness import Node

T = TypeVar("T")

ON = {"penstock.metrics.listen": "127.0.0.1:0"}
Series: TypeAlias = dict[tuple[str, tuple[str, ...]], float]


async def ask(node: Node, talk: Callable[[http.client.HTTPConnection], T]) -> T:
    """Talk to the endpoint in a thread, while the broker runs in this one."""
    assert node.broker.metrics_address is not None
    host, port = node.broker.metrics_address
    connection = http.client.HTTPConnection(host, port, timeout=20)
    try:
        return await asyncio.to_thread(talk, connection)
    finally:
        connection.close()


async def page(node: Node) -> str:
    def get(connection: http.client.HTTPConnection) -> str:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode()

    return await ask(node, get)


def families(text: str) -> dict[str, Metric]:
    return {metric.name: metric for metric in text_string_to_metric_families(text)}


def series(text: str) -> Series:
    """Every series by its name and the values of its labels in their order."""
    found: Series = {}
    for metric in text_string_to_metric_families(text):
        for sample in metric.samples:
            key = sample.name, tuple(sample.labels.values())
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


async def scrape(node: Node) -> Series:
    return series(await page(node))
