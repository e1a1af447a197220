"""The fuzzer of frames: what it sends, that it sees what goes wrong, and some thousand of its frames."""

import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from penstock.broker.handlers import ROUTERS, log_dirs
from penstock.broker.router import route_table
from penstock.protocol.codec import encode
from penstock.protocol.schemas.topics import DeleteTopicsRequest
from tools.fuzz_frames import __main__ as program
from tools.fuzz_frames import names
from tools.fuzz_frames.block import Finding, Runner
from tools.fuzz_frames.corpus import REQUESTS, Seed, captured, seeds
from tools.fuzz_frames.coverage import all_lines
from tools.fuzz_frames.heap import NoHeap, TracedHeap
from tools.fuzz_frames.mutating import Frame, make_frame, whole_frame
from tools.fuzz_frames.progress import Progress
from tools.fuzz_frames.worker import BLOCK

FRAMES = 2000
BROKEN = REQUESTS.parent / "broken_frames"
METADATA, DELETE_TOPICS, DESCRIBE_LOG_DIRS = 3, 20, 35


class HungryHeap(NoHeap):
    """Of which the same is taken every time."""

    def __init__(self, taken: int) -> None:
        self._taken = taken

    def taken(self) -> int:
        return self._taken


def findings(frames: Iterable[Frame], taken: int = 0) -> list[Finding]:
    return Runner(0, HungryHeap(taken)).run_frames(enumerate(frames)).findings


def a_request(key: int) -> Frame:
    seed = next(seed for seed in captured() if seed.key == key)
    return Frame(key, seed.version, "whole", whole_frame(seed))


def digest() -> str:
    return hashlib.sha256(b"".join(make_frame(7, number).data for number in range(300))).hexdigest()


# What is sent


def test_a_frame_follows_from_its_number_alone_in_every_process() -> None:
    ask = "from tests.tools.test_fuzz_frames import digest; print(digest())"
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    there = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, env=environment)
    assert there.stdout.strip() == digest()
    assert make_frame(7, 0) != make_frame(8, 0)


def test_every_api_and_version_that_clients_are_offered_is_sent() -> None:
    kinds = {(seed.key, seed.version) for kind in seeds() for seed in kind}
    wanted = {
        (key, version)
        for key, route in route_table(ROUTERS).items()
        if not route.brokers_only
        for version in range(route.versions.first, route.versions.last + 1)
    }
    assert kinds == wanted
    assert len({(seed.key, seed.version) for seed in captured()} & wanted) >= 70


def test_captured_requests_name_no_machine() -> None:
    stream = b"".join(path.read_bytes() for path in REQUESTS.glob("*.bin"))
    assert len(stream) < 300_000
    for private in (b"/home/", b"/root", b"/tmp", b"/usr"):
        assert private not in stream


# What is seen


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert findings([a_request(METADATA)] * 3) == []


def test_a_handler_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(log_dirs, "_asked", fail)
    [finding] = findings([a_request(DESCRIBE_LOG_DIRS)])
    assert finding.api == "DescribeLogDirs"
    assert finding.what.startswith("a request failed RuntimeError: a bug at ")


def test_harm_to_the_honest_client_is_found() -> None:
    body = encode(DeleteTopicsRequest(topic_names=[names.HONEST_TOPIC], timeout_ms=1000), 5)
    harmful = whole_frame(Seed(DELETE_TOPICS, 5, "hostile", body, is_captured=False))
    [finding] = findings([Frame(DELETE_TOPICS, 5, "whole", harmful)])
    assert finding.what.startswith("its Produce of the honest client: 3 instead of")


def test_memory_beyond_what_is_allowed_is_found() -> None:
    frame = a_request(METADATA)
    assert findings([frame], taken=64 * len(frame.data) + 64 * 1024) == []
    [finding] = findings([frame], taken=64 * len(frame.data) + 128 * 1024)
    assert finding.is_memory


def test_the_most_memory_is_measured_though_it_is_free_again() -> None:
    heap = TracedHeap()
    try:
        heap.begin()
        bytearray(1_000_000)
        assert 1_000_000 <= heap.taken() < 1_100_000
    finally:
        tracemalloc.stop()


def test_the_lines_of_every_module_of_handlers_are_known() -> None:
    assert {"fetch", "groups", "metadata", "produce", "topics"} <= all_lines().keys()


# Runs


def test_a_run_goes_on_where_another_was_interrupted(tmp_path: Path) -> None:
    progress = Progress.load(tmp_path / "state.json", seed=1)
    blocks = progress.missing(0, 3 * BLOCK)
    assert blocks == [(0, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, 3 * BLOCK)]
    progress.add(_outcome(BLOCK, 2 * BLOCK, reached=[[3, 12, 5]]))
    progress.save()

    again = Progress.load(tmp_path / "state.json", seed=1)
    assert again.missing(0, 3 * BLOCK) == [blocks[0], blocks[2]]
    assert (again.frames, again.reached[3, 12], again.lines) == (BLOCK, 5, {("fetch", 7)})
    assert [found["count"] for found in again.findings.values()] == [1]
    assert Progress.load(tmp_path / "state.json", seed=2).missing(0, 3 * BLOCK) == blocks


def test_what_other_code_did_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress.load(tmp_path / "state.json", seed=1)
    progress.add(_outcome(0, BLOCK))
    progress.save()
    monkeypatch.setattr("tools.fuzz_frames.progress.digest", lambda: "changed")
    assert Progress.load(tmp_path / "state.json", seed=1).missing(0, BLOCK) == [(0, BLOCK)]


def test_a_process_that_dies_is_found_with_the_frame_that_it_was_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = (
        "import os, sys, struct; print('{\"warm\": []}', flush=True); begin = eval(input())[0]; "
        "open(sys.argv[1], 'wb').write(struct.pack('>q', begin + 5)); os._exit(9)"
    )
    monkeypatch.setattr(program, "CACHE", tmp_path)
    monkeypatch.setattr(program, "worker_command", lambda _, at: [sys.executable, "-c", dying, str(at)])
    progress = Progress.load(tmp_path / "state.json", seed=1)
    program.Run(progress, Console(file=StringIO()), processes=2).perform(progress.missing(0, 2 * BLOCK))
    found = [example for kind in progress.findings.values() for example in kind["examples"]]
    assert sorted(each["number"] for each in found) == [5, BLOCK + 5]
    assert "the process ended with status 9" in found[0]["what"]
    assert progress.missing(0, 2 * BLOCK) == []


def test_no_mutated_frame_harms_a_broker(tmp_path: Path) -> None:
    """All APIs and versions are reached, one process does it all, and the last word is in its status."""
    state = tmp_path / "state.json"
    command = [sys.executable, "-m", "tools.fuzz_frames", "--frames", str(FRAMES), "--processes", "1"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [*command, "--state", str(state)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(state.read_text())
    assert told["frames"] == FRAMES
    # The broker itself calls some of what is for brokers alone.
    routes = route_table(ROUTERS)
    assert {(key, version) for key, version, _ in told["reached"] if not routes[key].brokers_only} == {
        (seed.key, seed.version) for kind in seeds() for seed in kind
    }


def test_frames_that_once_harmed_a_broker_no_longer_do() -> None:
    broken = [(path.name, path.read_bytes()) for path in sorted(BROKEN.glob("*.bin"))]
    assert broken
    found = findings(Frame(int.from_bytes(data[4:6]), int.from_bytes(data[6:8]), name, data) for name, data in broken)
    assert [(finding.how, finding.what) for finding in found] == []


def _outcome(begin: int, end: int, reached: list[list[int]] | None = None) -> dict[str, Any]:
    finding = {"number": begin, "api": "Fetch", "version": 4, "how": "glued", "what": "memory: 7 bytes", "data": "00"}
    return {
        "begin": begin,
        "end": end,
        "frames": end - begin,
        "checks": 1,
        "sent": [],
        "reached": reached or [],
        "lines": [["fetch", 7]],
        "findings": [finding],
        "worst": [0.5, begin, "Fetch"],
        "slowest": [0.1, begin, "Fetch"],
    }
