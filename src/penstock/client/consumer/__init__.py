"""The consumer reads messages: positions, fetches ahead of polls, and the ways in which an application gets
messages."""
