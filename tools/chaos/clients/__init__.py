"""Clients of a round, each a process of its own, of several libraries; every one writes its history."""
