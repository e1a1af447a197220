"""Measures what becomes of Penstock's cost and latency when there is more of everything."""
