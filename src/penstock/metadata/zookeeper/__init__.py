"""Metadata in ZooKeeper, for brokers of several hosts: where the nodes lie, a session, and the store itself."""

from penstock.metadata.zookeeper.store import ZookeeperStore

__all__ = ["ZookeeperStore"]
