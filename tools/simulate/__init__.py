"""Runs the code of production through schedules full of faults, each of which is decided by a seed."""
