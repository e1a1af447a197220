"""Other people's Kafka clients, each behind the same small interface: send these records, read those. The tests drive
them against our broker, and `make fixtures` captures what they send."""
