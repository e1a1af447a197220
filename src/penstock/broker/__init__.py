"""The server: connections, one handler module per API family, partitions, and the settings it runs with."""
