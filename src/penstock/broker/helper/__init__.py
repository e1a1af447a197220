"""The helper: a process beside the broker that does what loops over records in Python, out of the event loop's way."""
