"""This room holds the partitions that this broker leads: appending, reading, waiting."""
