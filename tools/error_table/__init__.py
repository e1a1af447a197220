"""The error table says what producers are told when too few replicas are in sync: `python -m tools.error_table` drives
four clients and the bare protocol against a cluster of three brokers of which one after the other is stopped."""
