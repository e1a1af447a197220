"""`Guide` turns a guide into what its reader does: a shell script of its commands, and its Python in files.

python -m tools.guides                 runs every guide that needs no Spark, one after the other, in a new folder
python -m tools.guides --spark         the guides to Spark, too (Java)
python -m tools.guides producing spark just these, in this order

The broker is the one that PENSTOCK_BOOTSTRAP names, or localhost:9092.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import which
from textwrap import dedent
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
INDEX: Final = ROOT / "docs" / "guides" / "README.md"
ADDRESS: Final = "localhost:9092"
"""What the guides call the broker; its real address is put in place of this."""

TOGETHER: Final = "one after the other into one file"
"""What a guide says whose blocks of Python make one file."""
ALONE: Final = "a program of its own"
"""What a guide says whose blocks of Python are a file each."""
TESTS: Final = "a test file of its own"
"""What a guide says whose blocks of Python are for pytest."""

SETTING_UP: Final = ("install", "wheel", "serve", "skip", "cluster", "brokers")
"""Marks of blocks that do not belong to a walk through the guides: they install Penstock, start the broker, need
something that is not there, need a cluster of Spark, or start brokers of their own."""

_BLOCK: Final = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(([a-z-]+\.md)\)")
# What a program prints when something failed that its author did not notice.
_FAULTS: Final = ("Traceback (most recent call last)", "was never retrieved", "was never awaited")

# `soon` stands for the reader, who is slower than a script: a command that comes too early, or does not print yet what
# it is about, is repeated.
_PROLOGUE: Final = """\
set -euo pipefail
set -m
trap 'status=$?; for job in $(jobs -p); do kill -TERM -- "-$job" 2>/dev/null || true; done; exit $status' EXIT
soon() {
    for _ in $(seq 100); do
        if shown=$(eval "$1" 2>&1) && grep -qE -e "$2" <<< "$shown"; then echo "$shown"; return 0; fi
        sleep 0.2
    done
    echo "$shown"
    echo "this did not work in time: $1" >&2
    exit 1
}
fails() { if eval "$1"; then echo "this was to fail: $1" >&2; exit 1; fi; }
"""


class Block(NamedTuple):
    """A fenced block of Markdown. After the language may stand marks that a reader does not see."""

    language: str
    marks: tuple[str, ...]
    code: str
    line: int


class GuideError(Exception):
    """A guide does not work; the message says which, and shows what it printed."""


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a Markdown file."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(found[2], tuple(found[3].split()), dedent(found[4]), text.count("\n", 0, found.start()) + 2)
        for found in _BLOCK.finditer(text)
    ]


@dataclass(frozen=True)
class Guide:
    """One page, as its reader follows it.

    Marks of a block: a name of a file saves it under that name, for commands that come later; `soon` repeats each
    command until it works, and `soon=TEXT` until it has printed that, too (a regular expression); `fails` expects each
    command to fail; `needs=PROGRAM` leaves the block out where there is no such program, and those of SETTING_UP leave
    it out always.
    """

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def text(self) -> str:
        return " ".join(self.path.read_text(encoding="utf-8").split())

    @cached_property
    def blocks(self) -> list[Block]:
        """What a walk through the guides does, with what this machine has."""
        return [
            block
            for block in blocks(self.path)
            if not set(block.marks) & set(SETTING_UP)
            and not any(
                mark.startswith("needs=") and which(mark.removeprefix("needs=")) is None for mark in block.marks
            )
        ]

    def commands(self, mark: str) -> list[str]:
        """The blocks of a mark, such as those that install something."""
        return [block.code for block in blocks(self.path) if mark in block.marks]

    @property
    def needs_spark(self) -> bool:
        return any("penstock.spark" in each.code or "penstock pipeline" in each.code for each in self.blocks)

    @property
    def runs(self) -> bool:
        return any(each.language in ("python", "sh", "console") for each in self.blocks)

    def programs(self, *, everything: bool = False) -> dict[str, str]:
        """Its Python by name of file, or everything, what is left out as well. What makes one file stands in the lines
        in which it stands in the guide."""
        made: dict[str, str] = {}
        python = [block for block in (blocks(self.path) if everything else self.blocks) if block.language == "python"]
        for block in python:
            name = self._file_of(block)
            before = made.get(name, "")
            made[name] = before + "\n" * (block.line - 1 - before.count("\n")) + block.code
        if len(python) > 1 and not any(says in self.text for says in (TOGETHER, ALONE, TESTS)):
            raise GuideError(f"{self.path} does not say how to paste its Python: {TOGETHER!r}, or {ALONE!r}")
        return made

    def script(self) -> str:
        """Its commands, in order; a file of Python runs where its last block stands."""
        lines = [_PROLOGUE]
        last = {self._file_of(block): block for block in self.blocks if block.language == "python"}
        for block in self.blocks:
            file = self._file_of(block)
            if block.language in ("sh", "console"):
                commands = _typed(block.code) if block.language == "console" else [block.code]
                lines += [_wrapped(each, block.marks) for each in commands]
            elif last.get(file) is block and _saved_as(block) is None and TESTS not in self.text:
                lines.append(f"python {file}")
        if TESTS in self.text:
            lines.append(shlex.join(["python", "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *last]))
        return "\n".join(lines)

    def follow(self, folder: Path, environment: Mapping[str, str], *, address: str = ADDRESS) -> str:
        """Do what the guide says, in a folder, with `python` and `penstock` in the PATH; return what was printed."""
        for name, code in self.programs().items():
            (folder / name).write_text(code.replace(ADDRESS, address), encoding="utf-8")
        done = subprocess.run(
            ["bash", "-c", self.script().replace(ADDRESS, address)],
            cwd=folder,
            env={**environment, "PENSTOCK_BOOTSTRAP": address},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # Spark prints the ends of its own processes as tracebacks, whatever they mean.
        has_faults = any(fault in done.stdout for fault in _FAULTS) and not self.needs_spark
        if done.returncode or has_faults:
            raise GuideError(f"{self.path} ended with {done.returncode}:\n{done.stdout[-6000:]}")
        return done.stdout

    def _file_of(self, block: Block) -> str:
        stem = self.name.replace("-", "_").lower()
        if (saved := _saved_as(block)) is not None:
            return saved
        if TESTS in self.text:
            return f"test_{stem}_{block.line}.py"
        # The name of a guide alone may be that of a module of Python's own, which it would hide.
        return f"{stem}_{block.line}.py" if ALONE in self.text else f"{stem}_guide.py"


def guides() -> list[Guide]:
    """The README and all guides, in the order of the index."""
    named = list(dict.fromkeys(_LINK.findall(INDEX.read_text(encoding="utf-8"))))
    return [Guide(ROOT / "README.md"), *(Guide(INDEX.parent / name) for name in named)]


def _saved_as(block: Block) -> str | None:
    return next((mark for mark in block.marks if mark.endswith(".py")), None)


def _wrapped(command: str, marks: tuple[str, ...]) -> str:
    for mark in marks:
        name, _, text = mark.partition("=")
        if name == "soon":
            return shlex.join(["soon", command, text])
        if name == "fails":
            return shlex.join(["fails", command])
    return command


def _typed(text: str) -> Iterator[str]:
    """What stands after prompts; a line that ends with a backslash goes on in the next."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            while command.endswith("\\"):
                command += f"\n{next(lines)}"
            yield command


def main(arguments: list[str]) -> int:
    """Follow the guides; return the exit status."""
    names = [each for each in arguments if not each.startswith("-")]
    known = {each.name: each for each in guides()}
    if unknown := [name for name in names if name not in known]:
        print(f"there is no guide {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    wanted = [known[name] for name in names] if names else list(known.values())
    chosen = [each for each in wanted if each.runs and (names or "--spark" in arguments or not each.needs_spark)]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory(prefix="penstock-guides-") as folder:
        for guide in chosen:
            began = time.monotonic()
            try:
                guide.follow(Path(folder), environment, address=os.environ.get("PENSTOCK_BOOTSTRAP", ADDRESS))
            except GuideError as error:
                print(error)
                return 1
            print(f"{guide.name}: {time.monotonic() - began:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
