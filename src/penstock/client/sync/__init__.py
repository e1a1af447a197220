"""These clients are for callers that block: `Producer`, `Consumer` and `Admin` as in `penstock.client`, without
`await`.

Each has an event loop in a thread of its own, which ends with `close`. Any thread may use a producer or an admin, one
at a time a consumer.
"""

from penstock.client.sync.admin import Admin
from penstock.client.sync.consumer import Consumer
from penstock.client.sync.producer import Producer, Sending

__all__ = ["Producer", "Consumer", "Admin", "Sending"]
