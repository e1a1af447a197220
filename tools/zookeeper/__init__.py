"""Runs ZooKeeper for tests, demos and guides: an ensemble on loopback, whose nodes can be killed and paused."""
