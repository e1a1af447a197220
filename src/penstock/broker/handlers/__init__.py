"""Handlers answer requests: each module serves one family of APIs, and this list is all that the broker offers."""

from penstock.broker.handlers import (
    configs,
    coordinators,
    elections,
    fetch,
    group_admin,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offset_fetch,
    offsets,
    produce,
    producer_ids,
    reassignments,
    replication,
    sasl,
    topics,
    versions,
)

ROUTERS = [
    module.router
    for module in (
        produce,
        fetch,
        offsets,
        metadata,
        versions,
        coordinators,
        groups,
        group_offsets,
        offset_fetch,
        group_admin,
        topics,
        elections,
        reassignments,
        producer_ids,
        configs,
        log_dirs,
        sasl,
        replication,
    )
]
