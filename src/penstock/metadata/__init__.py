"""The metadata store keeps what exists, who leads and who is alive: one interface, in a SQLite file, in
ZooKeeper, in another process of the host, or in memory."""
