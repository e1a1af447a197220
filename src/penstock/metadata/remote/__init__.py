"""The remote store is the metadata store of another process of this host, reached by a Unix socket."""

from penstock.metadata.remote.client import RemoteStore
from penstock.metadata.remote.server import StoreServer

__all__ = ["RemoteStore", "StoreServer"]
