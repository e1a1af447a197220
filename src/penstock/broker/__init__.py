"""The broker serves clients: its rooms hold connections, handlers by API family, partitions, and settings."""
