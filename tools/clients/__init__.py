"""Drives other people's Kafka clients through one small interface: send these records, read those. The tests run them
against our broker, and `make fixtures` captures what they send."""
