"""Send mutated frames of real clients to a broker: `python -m tools.fuzz_frames --frames 1000000 --processes 2`.

A run that was interrupted goes on where it was, as long as neither code nor corpus have changed. What is found is
written to .cache/fuzz/findings.json with the number of the frame and its bytes; `--replay NUMBER` shows it again. The
exit status is 1 if there is anything.
"""

import argparse
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import IO, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from penstock.protocol.errors import DecodeError
from penstock.protocol.session import Request, read_request
from tools.fuzz_frames.block import Runner, warm_up
from tools.fuzz_frames.heap import counting_environment, open_heap
from tools.fuzz_frames.mutating import make_frame
from tools.fuzz_frames.progress import Progress
from tools.fuzz_frames.report import report
from tools.fuzz_frames.worker import BLOCK, NUMBER

CACHE: Final = Path(".cache/fuzz")
# A block takes a second or two; a worker that needs longer for it is stuck in a frame.
STUCK_SECONDS: Final = 300.0
# Between the end of what a process says and its own.
END_SECONDS: Final = 30.0
SAVE_SECONDS: Final = 2.0


def main() -> int:
    options = parse_options()
    if options.replay is not None:
        return replay(options.seed, options.replay)
    # A run that is ended this way leaves nothing running, either.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False)
    state = options.state or CACHE / f"frames-{options.seed}.json"
    progress = Progress.load(state, options.seed)
    blocks = progress.missing(options.first, options.frames)
    if progress.frames:
        console.print(f"{progress.frames} frames of seed {options.seed} are done already")
    run = Run(progress, console, processes=min(options.processes, len(blocks)))
    try:
        run.perform(blocks)
    except KeyboardInterrupt:
        console.print("interrupted: the next run goes on from here")
        return 130
    finally:
        progress.save()
    report(progress, console, state.with_name("findings.json"))
    return 1 if progress.findings else 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.fuzz_frames", description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=1_000_000, help="how many (default: a million)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first, to share the work out")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the mutations: another one makes other frames")
    parser.add_argument("--state", type=Path, help="the file of what is done (default: below .cache/fuzz)")
    parser.add_argument("--replay", type=int, metavar="NUMBER", help="send this frame alone, then with those before it")
    return parser.parse_args()


def worker_command(seed: int, at: Path) -> list[str]:
    return [sys.executable, "-m", "tools.fuzz_frames.worker", "--seed", str(seed), "--at", str(at)]


class Worker:
    """A process at work on one block at a time."""

    def __init__(self, number: int, seed: int) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        self._at = CACHE / f"worker-{os.getpid()}-{number}"
        environment = {**os.environ, **counting_environment(CACHE)}
        self.process = subprocess.Popen(
            worker_command(seed, self._at), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self.block: tuple[int, int] | None = None
        self.began = time.monotonic()

    @property
    def output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def frame_number(self) -> int:
        """The frame that it is at; -1 if at none."""
        try:
            return int(NUMBER.unpack(self._at.read_bytes())[0])
        except (OSError, struct.error):
            return -1

    @property
    def is_stuck(self) -> bool:
        return time.monotonic() - self.began > STUCK_SECONDS

    def give(self, block: tuple[int, int]) -> None:
        assert self.process.stdin is not None
        self.block, self.began = block, time.monotonic()
        try:
            self.process.stdin.write(json.dumps(block) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            # It is dead, and its output will say so.
            pass

    def end(self) -> None:
        self.process.kill()
        # Waits for it, and closes both pipes.
        self.process.communicate()
        self._at.unlink(missing_ok=True)


class Run:
    def __init__(self, progress: Progress, console: Console, processes: int) -> None:
        self._progress = progress
        self._console = console
        self._processes = processes
        self._saved = time.monotonic()
        self._numbers = count()
        self._workers: list[Worker] = []
        self._waiting: list[tuple[int, int]] = []

    def perform(self, blocks: list[tuple[int, int]]) -> None:
        """Share the blocks out among workers; one that dies or gets stuck is a finding, and another takes its place."""
        self._waiting = blocks[::-1]
        total = sum(end - begin for begin, end in blocks)
        columns = (
            TextColumn("frames"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[found]} findings"),
        )
        with selectors.DefaultSelector() as selector, Bar(*columns, console=self._console) as bar:
            task = bar.add_task("frames", total=total, found=len(self._progress.findings))
            for _ in range(self._processes):
                self._start(selector)
            try:
                while self._workers:
                    ready = {key.data for key, _ in selector.select(1.0)}
                    for worker in list(self._workers):
                        if worker in ready or worker.is_stuck:
                            done = self._attend(worker, selector, is_ready=worker in ready)
                            bar.update(task, advance=done, found=len(self._progress.findings))
                    self._save_now_and_then()
            finally:
                for worker in self._workers:
                    worker.end()

    def _attend(self, worker: Worker, selector: selectors.BaseSelector, *, is_ready: bool) -> int:
        """Take what a worker says, if it does, and give it more to do; returns how many frames are settled by it."""
        line = worker.output.readline() if is_ready else ""
        settled = self._heard(worker, line)
        if line and self._waiting:
            worker.give(self._waiting.pop())
            return settled
        selector.unregister(worker.output)
        self._workers.remove(worker)
        worker.end()
        if self._waiting:
            self._start(selector)
        return settled

    def _start(self, selector: selectors.BaseSelector) -> None:
        worker = Worker(next(self._numbers), self._progress.seed)
        selector.register(worker.output, selectors.EVENT_READ, worker)
        self._workers.append(worker)

    def _heard(self, worker: Worker, line: str) -> int:
        """How many frames that settles."""
        progress = self._progress
        if line:
            told = json.loads(line)
            if "warm" in told:
                for finding in told["warm"]:
                    progress.add_finding(finding)
                return 0
            progress.add(told)
            return int(told["frames"])
        block, number = worker.block, worker.frame_number
        status = None if worker.is_stuck else worker.process.wait(END_SECONDS)
        what = (
            f"the process got stuck for {STUCK_SECONDS:.0f} s"
            if status is None
            else f"the process ended with status {status}"
        )
        if block is None:
            raise SystemExit(f"a worker could not start: {what}")
        frame = make_frame(progress.seed, max(number, block[0]))
        progress.add_finding(
            {
                "number": number,
                "api": str(frame.key),
                "version": frame.version,
                "how": frame.how,
                "what": f"{what} in the block from {block[0]} on",
                "data": frame.data.hex(),
            }
        )
        progress.done.add(block)
        return block[1] - block[0]

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self._progress.save()
            self._saved = time.monotonic()


def replay(seed: int, number: int) -> int:
    """The frame alone on a stage of its own; if that shows nothing, with all that its block sends before it."""
    heap = open_heap()
    for finding in warm_up(heap):
        print(f"as captured, {finding.api} v{finding.version}: {finding.what}")
    frame = make_frame(seed, number)
    print(f"frame {number} of seed {seed}: {frame.how}, {len(frame.data)} bytes: {frame.data[:64].hex()}")
    try:
        request = read_request(memoryview(frame.data)[4:], Request)
        print(f"{request.api.name} v{request.version}: {request.decode()!r}"[:2000])
    except DecodeError as error:
        print(f"it is no request: {error}")
    for begin in (number, number - number % BLOCK):
        findings = [each for each in Runner(seed, heap).run(range(begin, number + 1)).findings if each.number == number]
        for finding in findings:
            print(finding.what)
        if findings:
            return 1
    print("nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
