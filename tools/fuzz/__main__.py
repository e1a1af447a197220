"""Fuzz the readers of foreign bytes: `python -m tools.fuzz --seconds 60 [--target codec …]`.

An input that breaks a target is written to tests/fixtures/fuzz/<target>/, where the tests replay it from then on;
`python -m tools.fuzz --replay <file>` does so alone. The exit status is 1 if there was one. What the fuzzer has learnt
is kept in build/fuzz/ for its next run.
"""

import argparse
import re
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from hashlib import sha1
from os.path import relpath
from pathlib import Path
from random import Random

from tools.fuzz.seeds import REGRESSIONS, seeds
from tools.fuzz.targets import TARGETS

BUILD = Path("build/fuzz")
MAX_BYTES = 4096
# How many classes and versions of messages a run gets to know for each second it has.
KINDS_PER_SECOND = 10
# The codec has more to explore than the other targets together.
WEIGHTS = {"codec": 4}
SECONDS_BETWEEN_REPORTS = 10
LAST_WORDS = 40
LONGEST_LINE = 200
CHATTER = ("INFO:", "WARNING:")

DONE = re.compile(r"Done (?P<runs>\d+) runs")
PROGRESS = re.compile(r"#(?P<runs>\d+)\s.*\bcov: (?P<coverage>\d+) ft: \d+ corp: (?P<corpus>\d+)")


def main() -> int:
    options = parse_options()
    if options.replay:
        return replay(options.replay)
    targets: list[str] = options.target or list(TARGETS)
    share = options.seconds / sum(WEIGHTS.get(target, 1) for target in targets)
    seed = options.seed if options.seed is not None else int(time.time())
    print(f"fuzzing {', '.join(targets)} for {options.seconds} s, seed {seed}")
    runs = [Run(target, max(1, round(share * WEIGHTS.get(target, 1))), seed) for target in targets]
    for run in runs:
        run.perform()
    print("\ntarget            runs  branches  inputs kept  findings")
    for run in runs:
        print(f"{run.target:12} {run.runs:9}  {run.coverage:8}  {run.corpus:11}  {len(run.findings):8}")
    findings = [finding for run in runs for finding in run.findings]
    for finding in findings:
        path = relpath(finding)
        print(f"\nfound {path}\nreplay it with: {relpath(sys.executable)} -m tools.fuzz --replay {path}")
    return 1 if findings or any(run.failed for run in runs) else 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for how long, all targets together")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="only this one (may be repeated)")
    parser.add_argument("--seed", type=int, help="of the random choices, to repeat a run")
    parser.add_argument("--replay", type=Path, help="run the target on this input of tests/fixtures/fuzz/<target>/")
    return parser.parse_args()


def replay(path: Path) -> int:
    TARGETS[path.parent.name](path.read_bytes())
    print(f"{path}: nothing but what is allowed")
    return 0


@dataclass(slots=True)
class Run:
    """A worker's life: what it starts from, what it says, what it leaves."""

    target: str
    seconds: int
    seed: int
    runs: int = 0
    coverage: int = 0
    corpus: int = 0
    failed: bool = False
    findings: list[Path] = field(default_factory=list)

    def perform(self) -> None:
        starts, corpus = BUILD / "seeds" / self.target, BUILD / "corpus" / self.target
        artifacts = REGRESSIONS / self.target
        for folder in (starts, corpus, artifacts):
            folder.mkdir(parents=True, exist_ok=True)
        self.write_seeds(starts)
        before = set(artifacts.iterdir())
        command = [
            *(sys.executable, "-m", "tools.fuzz.worker", self.target),
            f"-max_total_time={self.seconds}",
            f"-seed={self.seed % (1 << 32)}",
            f"-max_len={MAX_BYTES}",
            "-timeout=10",
            f"-artifact_prefix={artifacts}/",
            str(corpus),
            str(starts),
        ]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as worker:
            said = self.follow(worker)
        self.findings = sorted(set(artifacts.iterdir()) - before)
        self.failed = worker.returncode != 0
        if self.failed:
            print("\n".join(said))
        if not any(artifacts.iterdir()):
            artifacts.rmdir()

    def write_seeds(self, folder: Path) -> None:
        for old in folder.iterdir():
            old.unlink()
        for seed in seeds(self.target, Random(self.seed), kinds=KINDS_PER_SECOND * self.seconds):
            (folder / sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)

    def follow(self, worker: subprocess.Popen[str]) -> deque[str]:
        """Report what the worker prints about its progress, until its end; returns the last of the rest."""
        assert worker.stdout is not None
        said: deque[str] = deque(maxlen=LAST_WORDS)
        reported = 0.0
        for line in worker.stdout:
            if done := DONE.match(line):
                self.runs = int(done["runs"])
            if not (progress := PROGRESS.match(line)):
                if not line.startswith(CHATTER):
                    said.append(line.rstrip()[:LONGEST_LINE])
                continue
            self.runs = int(progress["runs"])
            self.coverage = int(progress["coverage"])
            self.corpus = int(progress["corpus"])
            if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                print(f"{self.target}: {self.runs} runs, {self.coverage} branches, {self.corpus} inputs", flush=True)
        return said


if __name__ == "__main__":
    sys.exit(main())
