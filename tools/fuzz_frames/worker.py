"""Works off blocks of frames as a process: it reads their numbers, a line each, and answers each with its outcome.

Before a frame is sent its number is in a file of its own: the parent that finds this process dead or stuck knows at
what.
"""

import argparse
import json
import mmap
import struct
import sys
from pathlib import Path
from typing import Any, Final

from tools.fuzz_frames.block import Outcome, Runner, warm_up
from tools.fuzz_frames.coverage import Lines
from tools.fuzz_frames.heap import Heap, NoHeap, open_heap

BLOCK: Final = 500
"""Frames that share a stage."""
# The lines that are reached are noted in one block out of this many.
BLOCKS_PER_WATCHED: Final = 20
NUMBER: Final = struct.Struct(">q")


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.fuzz_frames.worker", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--at", type=Path, required=True, help="the file for the number of the frame")
    options = parser.parse_args()
    heap = open_heap()
    options.at.write_bytes(NUMBER.pack(-1))
    with options.at.open("r+b") as file, mmap.mmap(file.fileno(), NUMBER.size) as number:
        tell({"warm": [vars_of(finding) for finding in warm_up(heap)]})
        for line in sys.stdin:
            begin, end = json.loads(line)
            tell(work_off(options.seed, heap, begin, end, number))


def work_off(seed: int, heap: Heap, begin: int, end: int, number: mmap.mmap) -> dict[str, Any]:
    def on_frame(at: int) -> None:
        NUMBER.pack_into(number, 0, at)

    outcome = Runner(seed, heap, on_frame).run(range(begin, end))
    if any(finding.is_memory for finding in outcome.findings):
        # What is taken once in the life of a process, or by another thread at the time, is not taken again.
        again = Runner(seed, heap, on_frame).run(range(begin, end))
        confirmed = {finding.number for finding in again.findings if finding.is_memory}
        outcome.findings = [each for each in outcome.findings if not each.is_memory or each.number in confirmed]
        outcome.worst = again.worst
    lines = Lines()
    if (begin // BLOCK) % BLOCKS_PER_WATCHED == 0:
        # Once more, since watching takes memory of its own.
        with lines.watched():
            Runner(seed, NoHeap(), on_frame).run(range(begin, end))
    on_frame(-1)
    return to_json(outcome) | {"begin": begin, "end": end, "lines": sorted(lines.seen)}


def to_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "frames": outcome.frames,
        "checks": outcome.checks,
        "sent": [[*kind, count] for kind, count in sorted(outcome.sent.items())],
        "reached": [[*kind, count] for kind, count in sorted(outcome.reached.items())],
        "findings": [vars_of(finding) for finding in outcome.findings],
        "worst": outcome.worst,
        "slowest": outcome.slowest,
    }


def vars_of(finding: Any) -> dict[str, Any]:
    return {
        "number": finding.number,
        "api": finding.api,
        "version": finding.version,
        "how": finding.how,
        "what": finding.what,
        "data": finding.data.hex(),
    }


def tell(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main()
