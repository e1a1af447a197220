"""The supervisor runs several brokers on one host: it starts and restarts them, and keeps their metadata."""
