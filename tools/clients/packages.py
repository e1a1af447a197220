"""Fetches what comes from npm and Maven, once into `.cache/packages` and again when its manifest changes; what comes
from Debian is installed by `tools/setup_debian.sh`."""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.clients.processes import run

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache" / "packages"
NODE_MODULES = CACHE / "kafkajs" / "node_modules"
INSTALL_SECONDS = 600


def class_path(name: str) -> str:
    """The jars that were installed by a manifest in the folder `name`, as Java wants to hear of them."""
    return f"{CACHE / name}/*"


async def install_commands(*names: str) -> None:
    """Make sure that there are these commands."""
    with _alone():
        await run([str(ROOT / "tools" / "setup_debian.sh"), *names], seconds=INSTALL_SECONDS)


async def install_node_modules(folder: Path) -> None:
    """Fetch what the manifest in a folder asks for."""
    # Without scripts nothing is compiled: of lz4, which comes with kafkajs-lz4, the JavaScript half is enough.
    command = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    await _install(folder / "package.json", command)


async def install_jars(folder: Path) -> None:
    """Fetch the jars of a manifest, for `class_path` of the folder's name."""
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    output = f"-DoutputDirectory={CACHE / folder.name}"
    await _install(folder / "pom.xml", ["mvn", "--quiet", "--batch-mode", goal, "-DincludeScope=runtime", output])


async def _install(manifest: Path, command: Sequence[str]) -> None:
    folder = CACHE / manifest.parent.name
    done = folder / "installed"
    with _alone():
        # Written last, so that an interrupted installation is done again.
        if done.is_file() and done.read_bytes() == manifest.read_bytes():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(manifest, folder)
        await run(command, seconds=INSTALL_SECONDS, folder=folder)
        shutil.copy(manifest, done)


@contextmanager
def _alone() -> Iterator[None]:
    """Tests run in several processes, and each of them may find that something is missing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
