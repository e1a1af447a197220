"""Measures clusters: many partitions on several brokers, and several brokers of one host beside one."""
