"""Statistics as messages, read back by a consumer of ours."""

import json
from typing import Any

from penstock.client.sync import Consumer
from penstock.spark.statistics.run import Bar
from penstock.spark.statistics.topic import STATS_TOPIC, by_hour, coarsen, describe, publish_stats
from penstock.testing import Broker
from tests.spark.counted import HOUR_MS, NOON_MS, ORDERS, made


def read(broker: Broker, count: int) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    with Consumer({"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}, STATS_TOPIC) as consumer:
        for message in consumer:
            found.append(((message.key or b"").decode(), json.loads(message.value or b"")))
            if len(found) == count:
                break
    return found


def test_the_topic_is_made_and_has_a_message_for_each_topic_and_run() -> None:
    with Broker() as broker:
        publish_stats(made(), broker.bootstrap)
        publish_stats(made(ORDERS), {"bootstrap.servers": broker.bootstrap})
        messages = read(broker, 3)
    assert [key for key, _ in messages] == ["nothing", "orders", "orders"]
    told = messages[1][1]
    assert told == messages[2][1] == json.loads(json.dumps(describe(made(), ORDERS)))
    assert (told["topic"], told["messages"], told["sizes"]["p95"], told["latency_ms"]["p50"]) == ("orders", 30, 300, 8)
    assert told["hours"][0] == {"hour_ms": NOON_MS, "messages": 23, "bytes": 2490}
    assert [each.get("key", each.get("key_base64")) for each in told["top_keys"]] == ["ada", "/wA="]
    assert told["findings"][0] == {
        "kind": "duplicate",
        "producer_id": 7,
        "epoch": 0,
        "offset": 12,
        "sequence": 9,
        "count": 3,
        "partition": 0,
    }


def test_hours_are_added_up_over_partitions_and_those_without_a_time_left_out() -> None:
    assert by_hour(made().hours) == [(NOON_MS, 23, 2490), (NOON_MS + HOUR_MS, 6, 500)]


def test_many_bars_become_fewer_and_lose_nothing() -> None:
    bars = [Bar(number, number + 1, number) for number in range(100)]
    coarse = coarsen(bars, 30)
    assert (len(coarse), sum(each.messages for each in coarse)) == (25, sum(range(100)))
    assert (coarse[0].first, coarse[0].end, coarse[-1].end) == (0, 4, 100)
    assert coarsen([], 30) == []
