"""The numbers of the page of limits are those of the code."""

import re

import pytest

from penstock.broker import broker, dispatch, pacing, serving
from penstock.broker.config.broker_table import BROKER_CONFIGS
from penstock.broker.config.topic_table import TOPIC_CONFIGS
from penstock.broker.handlers import metadata
from penstock.broker.metrics import group_lags, rendering
from penstock.broker.network import connection, flow_control, listener
from penstock.broker.partitions import fetch_wait, record_checking
from penstock.broker.quick import fetch
from penstock.client import corruption
from penstock.client.cluster import connection as client_connection
from penstock.client.settings import ConsumerSettings, ProducerSettings
from penstock.machines import controller, decision_queue, fetch_sessions, topic_names
from penstock.machines.groups import bounds, subscription
from penstock.protocol import batch
from penstock.protocol.compression import MAX_DECOMPRESSED_BYTES
from tools.guides import INDEX

PAGE = " ".join((INDEX.parent / "limits.md").read_text(encoding="utf-8").split())
KIB, MIB = 1024, 1024 * 1024
UNITS = {"": 1, "KiB": KIB, "MiB": MIB, "s": 1000, "minutes": 60_000, "bytes": 1}

CLAIMS = {
    "{} MiB; beyond {} KiB it is decoded in a thread, {} MiB of such requests at a time": (
        dispatch.MAX_BYTES // MIB,
        dispatch.DECODED_AT_ONCE_BYTES // KIB,
        dispatch.LONG_BYTES // MIB,
    ),
    "one for {} bytes, and what the codec can make of them, up to {} MiB": (
        batch.MIN_RECORD_BYTES,
        MAX_DECOMPRESSED_BYTES // MIB,
    ),
    "where the broker looks inside | {} MiB": (MAX_DECOMPRESSED_BYTES // MIB,),
    "a fetch request | {} MiB": (fetch.MAX_FETCH_BYTES // MIB,),
    "a topic's name | {} characters": (topic_names.MAX_LENGTH,),
    "topics that a Metadata request creates | {} |": (metadata.MAX_CREATED_TOPICS,),
    "CreateTopics or CreatePartitions request | {:,} in all": (controller.MAX_NEW_PARTITIONS,),
    "a page of DescribeTopicPartitions | {:,} |": (metadata._MAX_DESCRIBED_PARTITIONS,),
    "where a time is looked for in it | {} MiB, two batches at a time": (MAX_DECOMPRESSED_BYTES // MIB,),
    "a group's id | 1 to {:,} bytes of UTF-8": (bounds.NAME_BYTES,),
    "an instance id, a protocol type, a protocol's name | {:,} bytes": (bounds.NAME_BYTES,),
    "protocols of a member | {}, and half of": (bounds.MAX_PROTOCOLS,),
    "subscribe to | {:,} are known": (subscription.MAX_TOPICS,),
    "members that one LeaveGroup names | {:,} |": (bounds.MAX_LEAVING,),
    "never more than {:,} bytes": (bounds.STRING_BYTES,),
    "worked on in slices of {}": (pacing.ITEMS_AT_ONCE,),
    "Batches of up to {:,} records are checked on the event loop, {} records a turn": (
        record_checking.RECORDS_IN_TURNS,
        record_checking.RECORDS_AT_ONCE,
    ),
    "unless it has at most {} records and {} KiB, compressed and decompressed": (
        record_checking.RECORDS_AT_ONCE,
        record_checking.BYTES_AT_ONCE // KIB,
    ),
    "not read from while {} KiB of replies or {:,} requests wait": (
        connection.MAX_QUEUED_BYTES // KIB,
        connection.MAX_UNANSWERED,
    ),
    "come to its end within {:.0f} s": (listener.FRAME_SECONDS,),
    "takes nothing of its replies for {:.0f} s": (listener.STALLED_SECONDS,),
    "up to {:,} | accepting pauses": (serving.OPEN_FILES,),
    "{} MiB in all, or 2.5 × `socket.request.max.bytes`": (broker.UNANSWERED_BYTES // MIB,),
    "requests over {} KiB that have not come to their end | half of that; those over {} MiB a quarter": (
        flow_control.LARGE_BYTES // KIB,
        flow_control.LARGEST_BYTES // MIB,
    ),
    "replies that clients do not take | {} MiB in all": (listener.MAX_REPLY_BYTES // MIB,),
    "kept most of them for over {:.0f} s": (listener.KEEPING_SECONDS,),
    "partitions that waiting fetches name | {:,} in all | a fetch of over {} partitions": (
        fetch_wait.MAX_WAITING,
        fetch_wait.AT_ONCE,
    ),
    "has not confirmed | {:,}, and {} MiB": (
        decision_queue.MAX_UNCOMMITTED,
        decision_queue.MAX_UNCOMMITTED_BYTES // MIB,
    ),
    "have not come back | {:,} |": (bounds.MAX_INVITED,),
    "partitions in fetch sessions | {:,} in all; of one session, at most {} more": (
        fetch_sessions.MAX_PARTITIONS,
        fetch_sessions.SPARE_UNKNOWN,
    ),
    "series in the metrics | {:,} partitions, and {:,} committed offsets": (
        rendering.MAX_PARTITIONS,
        group_lags.MAX_OFFSETS,
    ),
    "(`throttle_time_ms`) | {} s at a time": (client_connection.MAX_THROTTLE_MS // 1000,),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_limit_of_the_page_is_that_of_the_code(claim: str) -> None:
    assert claim.format(*CLAIMS[claim]) in PAGE


def test_limits_that_the_page_has_in_words_are_those_of_the_code() -> None:
    assert (pacing.THREADS, record_checking.THREADS, record_checking.JOBS) == (2, 2, 4)
    assert corruption.LOG_INTERVAL_S == 1.0
    # "6 s to 30 min"
    assert BROKER_CONFIGS["group.min.session.timeout.ms"].default == 6_000
    assert BROKER_CONFIGS["group.max.session.timeout.ms"].default == 30 * 60_000


def test_defaults_of_the_page_are_those_of_the_configs_and_settings() -> None:
    found = re.findall(r"`([a-z]+(?:\.[a-z]+)+)`(?: of the topic)?,? \(?([\d,]*\d) ?(KiB|MiB|s\b|minutes|bytes)?", PAGE)
    assert len(found) >= 12
    for name, number, unit in found:
        value = int(number.replace(",", "")) * UNITS[unit]
        if name in TOPIC_CONFIGS or name in BROKER_CONFIGS:
            assert (TOPIC_CONFIGS.get(name) or BROKER_CONFIGS[name]).default == value, name
        else:
            kind = ProducerSettings if hasattr(ProducerSettings(), name.replace(".", "_")) else ConsumerSettings
            assert getattr(kind(), name.replace(".", "_")) == value, name


def test_configs_that_have_no_limit_by_default_have_none() -> None:
    for name in ("max.connections", "max.connections.per.ip", "group.max.size"):
        assert f"`{name}`" in PAGE
        assert BROKER_CONFIGS[name].default == 2**31 - 1
