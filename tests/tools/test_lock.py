"""The files in requirements/: everything that is installed, with its version and hashes, whatever the registry."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = {"dev": "dev.txt", "fuzz": "fuzz.txt", "build": "build.txt", "installer": "uv.txt"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MAKE = (ROOT / "Makefile").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def lock_text(name: str) -> str:
    return (ROOT / "requirements" / name).read_text()


def entries(text: str) -> list[tuple[Requirement, list[str]]]:
    """The packages of a lock, each with its hashes. A line that is neither is an error."""
    found = []
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        wanted, *hashes = line.split(" --hash=")
        found.append((Requirement(wanted), hashes))
    return found


def wanted_by(group: str) -> list[Requirement]:
    texts = list(PYPROJECT["dependency-groups"][group])
    if group == "dev":
        texts += PYPROJECT["project"]["dependencies"]
    if group == "build":
        texts += PYPROJECT["build-system"]["requires"]
    return [Requirement(text) for text in texts]


def holds(requirement: Requirement, python: str) -> bool:
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    return requirement.marker is None or requirement.marker.evaluate(environment)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("group", LOCKS)
def test_what_pyproject_asks_for_is_locked_for_every_python_at_a_version_that_it_allows(
    group: str, python: str
) -> None:
    locked = {canonicalize_name(each.name): each for each, _ in entries(lock_text(LOCKS[group])) if holds(each, python)}
    for wanted in wanted_by(group):
        if holds(wanted, python):
            assert canonicalize_name(wanted.name) in locked, f"{wanted.name} is missing: run make lock"
            [pin] = locked[canonicalize_name(wanted.name)].specifier
            assert pin.operator == "=="
            assert wanted.specifier.contains(pin.version), f"{wanted} is locked at {pin}: run make lock"


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", LOCKS.values())
def test_a_package_has_one_version_for_a_python(name: str, python: str) -> None:
    names = [canonicalize_name(each.name) for each, _ in entries(lock_text(name)) if holds(each, python)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", LOCKS.values())
def test_every_package_has_hashes_and_one_version(name: str) -> None:
    found = entries(lock_text(name))
    assert found
    for requirement, hashes in found:
        assert requirement.url is None
        assert [each.operator for each in requirement.specifier] == ["=="]
        assert hashes, requirement.name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement.name


@pytest.mark.parametrize("name", LOCKS.values())
def test_a_lock_names_no_registry_and_no_place_of_a_machine(name: str) -> None:
    text = lock_text(name)
    assert text.splitlines()[1].split() == ["#", "make", "lock"]
    assert not re.search(r"https?:|://|--(extra-)?index-url|--find-links|--trusted-host|file:", text)
    # Every address and every path has one.
    assert not [line for line in text.splitlines() if "/" in line]


def test_whatever_is_installed_is_installed_by_hash() -> None:
    commands = [line for line in MAKE.splitlines() if re.search(r"pip install|\$\(install\)", line)]
    assert len(commands) == 5
    for line in commands:
        is_definition = line.startswith("install :=")
        assert is_definition or "--require-hashes" in line or line.endswith("--no-deps --editable ."), line
    assert "--build-constraint requirements/build.txt" in MAKE
