"""Starts Apache Kafka from Maven: one node that is its own controller, with a heap of 1 GB and G1, as its scripts start
it."""

import subprocess
from pathlib import Path
from typing import Final

from benchmarks.processes import Server, free_port
from benchmarks.systems import System, speaks_kafka
from tools.fixtures.kafka import CLUSTER_ID, PROPERTIES, java, version

_HEAP_MB: Final = 1024
# What is deleted would stay on the disk for a minute.
_ALWAYS: Final = "log.segment.delete.delay.ms=1000\n"
_FLUSH: Final = "log.flush.interval.messages=1\n"


class Kafka(System):
    name = "Apache Kafka"

    def __init__(self, *, flush: bool, name: str = "Apache Kafka") -> None:
        self.name = name
        self._flush = flush

    def start(self, folder: Path, cores: tuple[int, ...]) -> Server:
        port, controller = free_port(), free_port()
        properties = folder / "server.properties"
        told = PROPERTIES.format(broker=port, controller=controller, folder=folder)
        properties.write_text(told + _ALWAYS + (_FLUSH if self._flush else ""))
        started = java(_HEAP_MB)
        tool = [*started, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
        subprocess.run(tool, capture_output=True, check=True)
        command = [*started, "kafka.Kafka", str(properties)]
        return Server(command, port=port, folder=folder, cores=cores, is_ready=speaks_kafka)

    def version(self) -> str:
        return version()

    def settings(self) -> str:
        return "1 GB heap, G1" + (", log.flush.interval.messages=1" if self._flush else "")
