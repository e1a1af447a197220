"""`make first-hour`: does what a new user does, from a clone to the last guide, and says how long each step took.

python -m tools.first_hour           clone, README, wheel into an empty environment, every guide (10 minutes)
python -m tools.first_hour --short   clone, README, quick start (half a minute)

It needs git, bash and Python, and no environment of ours; packages come from where pip is configured to look. Brokers
listen on a free port in place of 9092, and keep their data in the temporary folder in which everything happens.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tools.guides import ADDRESS, ROOT, Guide, GuideError, blocks, guides

CHECKOUT: Final = "/path/to/checkout"
"""What the quick start calls the clone."""
SERVE: Final = "penstock serve"
START_SECONDS: Final = 30
STOP_SECONDS: Final = 30


class FirstHour:
    """A new user with an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, str] = {}
        self.checkout = folder / "checkout"
        self.address = f"127.0.0.1:{_free_port()}"

    def run(self, *, short: bool) -> None:
        if short:
            # Else a new group waits three seconds for members that do not come, and pip compiles what is not used.
            self.settings |= {"PENSTOCK_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "PIP_NO_COMPILE": "1"}
        self.step("clone", self.clone)
        self.step("README: two commands", self.install_from_readme)
        first = [Guide(self.checkout / "README.md"), Guide(self.checkout / "docs/guides/quick-start.md")]
        with self.serving(self.checkout):
            for guide in first:
                self.follow(guide, self.checkout)
        if not short:
            self.with_a_wheel()

    def with_a_wheel(self) -> None:
        """Everything again, in a folder that knows nothing of the checkout, by the wheel alone."""
        user = self.folder / "user"
        user.mkdir()
        self.step("wheel into an empty environment", lambda: self.install_wheel(user))
        with self.serving(user):
            for guide in (Guide(self.checkout / each.path.relative_to(ROOT)) for each in guides() if each.runs):
                # Those two have been installed by now.
                packages = [] if guide.name in ("README", "quick-start") else guide.commands("install")
                for command in packages:
                    self.step(command.strip(), partial(_shell, command, user, self.environment(user)))
                self.follow(guide, user)

    def clone(self) -> None:
        """What is not committed is taken along, so that it can be tried before it is."""
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.checkout)], check=True)
        changed = subprocess.run(
            ["git", "ls-files", "-z", "--modified", "--others", "--exclude-standard"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for name in dict.fromkeys(filter(None, changed.stdout.split("\0"))):
            source, target = ROOT / name, self.checkout / name
            if source.is_file() and not source.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            elif not source.exists():
                target.unlink(missing_ok=True)

    def install_from_readme(self) -> None:
        [block] = [each for each in blocks(self.checkout / "README.md") if "install" in each.marks]
        lines = block.code.splitlines()
        if len(lines) != 2 or lines[-1] != SERVE:
            raise GuideError(
                f"README.md begins with two commands, of which the second is {SERVE!r}, and not with {lines}"
            )
        _shell(lines[0], self.checkout, self.environment(None))

    def install_wheel(self, user: Path) -> None:
        guide = Guide(self.checkout / "docs/guides/quick-start.md")
        making = [line for each in guide.commands("install") for line in each.splitlines() if CHECKOUT not in line]
        wheel = "\n".join(guide.commands("wheel")).replace(CHECKOUT, shlex.quote(str(self.checkout)))
        extra = 'pip install "$(ls dist/penstock_mq-*.whl)[spark]"'
        if extra not in guide.text:
            raise GuideError(f"the quick start does not say {extra!r} any more")
        _shell("\n".join([*making, wheel, extra]), user, self.environment(None))

    def follow(self, guide: Guide, folder: Path) -> None:
        self.step(guide.name, lambda: guide.follow(folder, self.environment(folder), address=self.address))

    @contextmanager
    def serving(self, folder: Path) -> Iterator[None]:
        """The broker, as the README starts it, until the end of the block; then Ctrl-C."""
        with (self.folder / "broker.log").open("ab") as log:
            broker = subprocess.Popen(
                shlex.split(SERVE),
                executable=str(folder / "venv" / "bin" / "penstock"),
                cwd=folder,
                env=self.environment(folder),
                stdout=log,
                stderr=log,
            )
        try:
            _wait_until_it_listens(self.address, broker)
            yield
        finally:
            broker.send_signal(signal.SIGINT)
            try:
                status = broker.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                broker.kill()
                status = broker.wait()
        if status != 0:
            raise GuideError(f"the broker ended with {status}:\n{(self.folder / 'broker.log').read_text()[-3000:]}")

    def environment(self, folder: Path | None) -> dict[str, str]:
        """That of a user, with the environment of a folder activated; pip finds what configures it."""
        mine = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "SPARK_HOME", "PYSPARK_PYTHON")
        path = [each for each in os.environ["PATH"].split(os.pathsep) if not _is_an_environment(Path(each).parent)]
        if folder is not None:
            path.insert(0, str(folder / "venv" / "bin"))
        return {
            **{name: value for name, value in os.environ.items() if name not in mine},
            "PATH": os.pathsep.join(path),
            "XDG_DATA_HOME": str(self.folder / "data" / (folder or self.checkout).name),
            "PENSTOCK_LISTENERS": f"PLAINTEXT://{self.address}",
            **self.settings,
        }

    @staticmethod
    def step(name: str, do: Callable[[], object]) -> None:
        began = time.monotonic()
        do()
        print(f"{time.monotonic() - began:7.1f} s  {name}", flush=True)


def _shell(commands: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Type commands; raise what they printed if one fails."""
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{commands}"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GuideError(f"{commands}\nended with {done.returncode}:\n{done.stdout[-6000:]}")


def _is_an_environment(folder: Path) -> bool:
    return (folder / "pyvenv.cfg").exists()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_until_it_listens(address: str, broker: "subprocess.Popen[bytes]") -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and broker.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise GuideError(f"the broker does not listen on {address} (in the guides: {ADDRESS})")


def main(arguments: list[str]) -> int:
    """Live the hour; return the exit status."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-first-hour-") as folder:
        try:
            FirstHour(Path(folder)).run(short="--short" in arguments)
        except GuideError as error:
            print(error)
            return 1
    print(f"{time.monotonic() - began:7.1f} s  all of it", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
