"""This package makes a consumer a member of a group: joining, heartbeats and commits."""
