"""A broker under a supervisor waits for the word to begin, and reports in one line that it is ready."""

import json
from dataclasses import asdict, dataclass
from typing import IO


@dataclass(slots=True, frozen=True)
class Readiness:
    """What a broker reports when clients can connect."""

    node_id: int
    cluster_id: str
    address: str
    metrics_url: str | None = None


def write_readiness(output: IO[bytes], told: Readiness) -> None:
    """Report to the supervisor, if it is still there: the broker serves all the same."""
    try:
        output.write(json.dumps(asdict(told)).encode() + b"\n")
        output.flush()
    except BrokenPipeError:
        pass


def read_readiness(line: bytes) -> Readiness | None:
    """What a line says; None if it is something else, such as the output of a library."""
    try:
        told = json.loads(line)
        return Readiness(int(told["node_id"]), told["cluster_id"], told["address"], told["metrics_url"])
    except (ValueError, KeyError, TypeError):
        return None


def wait_for_word(given: IO[bytes]) -> bool:
    """Whether the broker may begin. A supervisor gives the word after it has written the process down; one that died
    before never does, and no other would know of the process."""
    return given.readline() != b""
