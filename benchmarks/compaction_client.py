"""Gives keys new values at a steady rate, with requests made beforehand; prints how long the longest reply took."""

import json
import selectors
import socket
import sys
import time
from collections import deque
from random import Random

from penstock.protocol.codec import decode
from penstock.protocol.framing import FrameReader
from penstock.protocol.records import NewRecord, build
from penstock.protocol.schemas.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from penstock.protocol.session import ClientSession

VERSION = 12
DIFFERENT = 200


def main(arguments: list[str]) -> None:
    port, keys, in_batch, value_bytes, rate, seconds = map(int, (arguments[0], *arguments[2:]))
    requests = make_requests(arguments[1], keys=keys, in_batch=in_batch, value_bytes=value_bytes)
    longest, sent, total = 0.0, 0, rate * seconds
    due_times: deque[float] = deque()
    answers, frames = 0, FrameReader()
    with socket.create_connection(("127.0.0.1", port)) as sock, selectors.DefaultSelector() as selector:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ)
        began = time.perf_counter()
        while answers < total:
            now = time.perf_counter()
            while sent < total and began + sent / rate <= now:
                # Late or not, it counts from when it was due.
                due_times.append(began + sent / rate)
                sock.sendall(requests[sent % len(requests)])
                sent += 1
            wait = max(0.0, began + sent / rate - time.perf_counter()) if sent < total else 60.0
            if selector.select(timeout=wait):
                data = sock.recv(1 << 16)
                assert data, "the broker closed the connection"
                for frame in frames.feed(memoryview(data)):
                    check(frame)
                    answers += 1
                    longest = max(longest, time.perf_counter() - due_times.popleft())
    print(json.dumps({"seconds": time.perf_counter() - began, "longest_seconds": longest}))


def make_requests(topic: str, *, keys: int, in_batch: int, value_bytes: int) -> list[bytes]:
    random, now_ms = Random(7), time.time_ns() // 1_000_000
    made = []
    for _ in range(DIFFERENT):
        records = [
            NewRecord(random.randbytes(value_bytes), key=b"key-%012d" % random.randrange(keys), timestamp=now_ms)
            for _ in range(in_batch)
        ]
        data = PartitionProduceData(index=0, records=build(records))
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        made.append(b"".join(map(bytes, ClientSession("bench").send(request, VERSION)[1])))
    return made


def check(frame: memoryview) -> None:
    response = decode(ProduceResponse, VERSION, frame[5:])
    [answer] = response.responses[0].partition_responses
    assert answer.error_code == 0, f"a batch was refused: {answer}"


if __name__ == "__main__":
    main(sys.argv[1:])
