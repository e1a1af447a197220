"""The lake keeps topics as Delta tables, and sends them back to topics."""
