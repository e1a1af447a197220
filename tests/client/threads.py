"""The threads of clients: a broker in the same process has others, which come and go by themselves."""

import threading

NAMES = ("penstock-admin", "penstock-consumer", "penstock-producer", "penstock-push")


def client_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith(NAMES)}
