"""Every public name of the SDK is documented with an example, and every example runs."""

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest

import penstock.client
import penstock.client.sync
import penstock.testing
from penstock.testing import Broker
from tests.docs.running import example, run

PACKAGES = (penstock.client, penstock.client.sync, penstock.testing)


def public_names() -> Iterator[tuple[str, object]]:
    for package in PACKAGES:
        for name in package.__all__:
            yield f"{package.__name__}.{name}", getattr(package, name)


NAMES = dict(public_names())
DOCUMENTED = {name: thing for name, thing in NAMES.items() if inspect.isclass(thing) or inspect.isfunction(thing)}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_public_name_is_documented_with_an_example(name: str) -> None:
    thing = DOCUMENTED[name]
    text = inspect.getdoc(thing) or ""
    is_error = inspect.isclass(thing) and issubclass(thing, Exception)
    assert text, f"{name} has no docstring"
    assert is_error or ">>>" in text or example(thing), f"{name} has no example"


@pytest.mark.parametrize("name", [name for name, thing in DOCUMENTED.items() if example(thing)])
def test_the_example_of_a_public_name_runs(name: str) -> None:
    thing = DOCUMENTED[name]
    code = example(thing)
    assert code is not None
    module, _, own = name.rpartition(".")
    names = {"__name__": "__docs__", **{each: getattr(importlib.import_module(module), each) for each in (own,)}}
    with Broker() as broker:
        run([(code, name, 1)], broker.bootstrap, names)


METHODS = {
    f"{name}.{method}": code
    for name, thing in DOCUMENTED.items()
    if inspect.isclass(thing)
    for method, function in vars(thing).items()
    if not method.startswith("_") and inspect.isfunction(function) and (code := example(function))
}


@pytest.mark.parametrize("name", METHODS)
def test_the_example_of_a_public_method_runs(name: str) -> None:
    package = importlib.import_module(name.rpartition(".")[0].rpartition(".")[0])
    names = {"__name__": "__docs__", **{each: getattr(package, each) for each in package.__all__}}
    with Broker() as broker:
        run([(METHODS[name], name, 1)], broker.bootstrap, names)


MODULES = [
    module.name
    for package in (penstock.client, penstock.testing)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_prompts_in_docstrings_tell_what_really_happens(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
