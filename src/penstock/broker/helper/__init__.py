"""The helper is a process beside the broker that loops over records in Python, out of the event loop's way."""
