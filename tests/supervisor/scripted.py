"""Processes that stand for brokers: each does what its script says, and is there within milliseconds."""

import sys
from collections.abc import Sequence

_FRAME = """
import json, os, signal, sys
def ready(number):
    told = {"node_id": number, "cluster_id": "c", "address": f"127.0.0.1:{9092 + number}", "metrics_url": None}
    print(json.dumps(told), flush=True)
def stop_at_sigterm(code=0):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(code))
def begin():
    if not sys.stdin.readline():
        os._exit(99)
"""

SERVES = "stop_at_sigterm(); begin(); ready({number}); signal.pause()"
REFUSES = "begin(); sys.exit(1)"
NEVER_STOPS = "signal.signal(signal.SIGTERM, signal.SIG_IGN); begin(); ready({number}); signal.pause(); signal.pause()"


def command(script: str, number: int = 0) -> Sequence[str]:
    return [sys.executable, "-S", "-c", _FRAME + script.replace("{number}", str(number))]
