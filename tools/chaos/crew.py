"""The crew of a round is its clients: processes of several libraries that write, read and commit while things break."""

import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tools.chaos.clients.work import FLUSH_SECONDS
from tools.chaos.stage import StuckError
from tools.clients.packages import ROOT
from tools.clients.processes import last_lines

BESIDE_KIND: Final = "own-beside"
KINDS: Final = (
    "confluent-producer",
    "confluent-member",
    "own-producer",
    "own-hasty",
    "own-once",
    "own-reader",
    "own-member",
    BESIDE_KIND,
)
FEW_KINDS: Final = ("confluent-producer", "confluent-member", "own-producer", "own-once", "own-member")
"""As many as a round takes that is to be short."""
END_SECONDS: Final = FLUSH_SECONDS + 20


@dataclass(slots=True)
class Client:
    name: str
    kind: str
    process: subprocess.Popen[bytes]


@dataclass(slots=True)
class Crew:
    """Its clients run here, in this process's namespace; histories and what the clients complain of are in `folder`."""

    folder: Path
    bootstrap: str
    topic: str
    partitions: int
    group: str
    kinds: tuple[str, ...] = KINDS
    clients: list[Client] = field(default_factory=list)
    _started: Counter[str] = field(default_factory=Counter)

    def start_all(self) -> None:
        for kind in self.kinds:
            self.start(kind)

    def start(self, kind: str) -> None:
        self._started[kind] += 1
        name = f"{kind}-{self._started[kind]}"
        asked = ["--client", name, "--history", str(self.folder / f"{name}.jsonl"), "--bootstrap", self.bootstrap]
        asked += ["--topic", self.topic, "--partitions", str(self.partitions), "--group", self.group]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tools.chaos.clients", kind, *asked],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.clients.append(Client(name, kind, process))

    def histories(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    def kill_one(self, chance: Random) -> str:
        """At once; returns its kind."""
        client = chance.choice(self.clients)
        self.clients.remove(client)
        client.process.kill()
        client.process.wait()
        return client.kind

    def check(self) -> None:
        """A client that has ended without being asked to has failed."""
        for client in self.clients:
            if client.process.poll() is not None:
                raise StuckError(f"{client.name} has ended: {self._complaints(client)}")

    def end(self) -> None:
        """Ask all to end; they say what has become of their messages first."""
        self.check()
        for client in self.clients:
            client.process.terminate()
        deadline = time.monotonic() + END_SECONDS
        try:
            for client in self.clients:
                try:
                    code = client.process.wait(max(deadline - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    raise StuckError(f"{client.name} does not end within {END_SECONDS} s") from None
                # One that was started late may not have come to take signals yet, and has done nothing.
                if code not in (0, -signal.SIGTERM):
                    raise StuckError(f"{client.name} ended with {code}: {self._complaints(client)}")
        finally:
            self.kill()

    def kill(self) -> None:
        for client in self.clients:
            client.process.kill()
            client.process.wait()
        self.clients.clear()

    def _complaints(self, client: Client) -> str:
        return last_lines((self.folder / f"{client.name}.log").read_bytes())
