"""Commits offsets as fast as it gets answers, with requests made beforehand; prints how long that took as JSON."""

import json
import selectors
import socket
import sys
import time
from itertools import cycle, islice

from penstock.protocol.codec import decode
from penstock.protocol.framing import FrameReader
from penstock.protocol.schemas.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.schemas.groups import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.protocol.session import ClientSession

VERSION = 8


def main(arguments: list[str]) -> None:
    port, partitions, groups, commits, connections = map(int, (arguments[0], *arguments[2:]))
    began = time.perf_counter()
    wait_for_coordinator(port)
    start_seconds = time.perf_counter() - began
    requests = [commit(f"group-{number}", arguments[1], partitions) for number in range(groups)]
    pending = islice(cycle(requests), commits)
    began = time.perf_counter()
    answers = 0
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            opened = socket.create_connection(("127.0.0.1", port))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(opened, selectors.EVENT_READ, FrameReader())
            opened.sendall(next(pending))
        while answers < commits:
            for key, _ in selector.select(timeout=60):
                sock, frames = key.fileobj, key.data
                assert isinstance(sock, socket.socket)
                data = sock.recv(65536)
                assert data, "the broker closed the connection"
                for frame in frames.feed(memoryview(data)):
                    check(frame)
                    answers += 1
                    if (request := next(pending, None)) is not None:
                        sock.sendall(request)
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
    print(json.dumps({"seconds": time.perf_counter() - began, "start_seconds": start_seconds}))


def wait_for_coordinator(port: int) -> None:
    """The first client that asks for a coordinator has the topic for groups made."""
    request = FindCoordinatorRequest(coordinator_keys=["group-0"])
    while True:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"".join(ClientSession("bench").send(request, 4)[1]))
            frames = FrameReader().feed(memoryview(sock.recv(65536)))
        response = decode(FindCoordinatorResponse, 4, frames[0][5:])
        if response.coordinators[0].error_code == 0:
            return
        time.sleep(0.05)


def commit(group: str, topic: str, partitions: int) -> bytes:
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1_000_000 + index)
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=offsets)])
    return b"".join(ClientSession("bench").send(request, VERSION)[1])


def check(frame: memoryview) -> None:
    response = decode(OffsetCommitResponse, VERSION, frame[5:])
    errors = {partition.error_code for topic in response.topics for partition in topic.partitions}
    assert errors == {0}, f"a commit was refused: {errors}"


if __name__ == "__main__":
    main(sys.argv[1:])
