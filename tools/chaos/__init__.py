"""Looks for what a queue must never do: in the histories of clients that used it while it was broken on purpose."""
