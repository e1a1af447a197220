"""This package administers a cluster: its topics, offsets, configs, groups and their lag."""
