"""One module for each family of APIs. This list is all that the broker offers."""

from penstock.broker.handlers import (
    configs,
    coordinators,
    fetch,
    group_admin,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offsets,
    produce,
    producer_ids,
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
        group_admin,
        topics,
        producer_ids,
        configs,
        log_dirs,
    )
]
