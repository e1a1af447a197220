"""One module for each family of APIs. This list is all that the broker offers."""

from penstock.broker.handlers import (
    configs,
    coordinators,
    fetch,
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
        topics,
        producer_ids,
        configs,
        log_dirs,
    )
]
