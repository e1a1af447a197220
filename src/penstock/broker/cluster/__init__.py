"""This room holds what the broker knows of its cluster."""
