"""Writes the page of the SDK's public names, from the packages that export them and their docstrings."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import penstock.client
from tools.reference.tables import first_paragraph, first_sentence, table

INTRODUCTION = """\
# The SDK's public names

<!-- Written by `python -m tools.reference` from the packages and their docstrings. Change those. -->

What these packages export stays where it is. Everything has type hints and docstrings, most of them with an example:
`help(penstock.client.Consumer)`. What clients take as `**settings` is in [settings of clients](client-settings.md).
"""

PACKAGES = {
    "penstock.client": "Clients on asyncio ([producing](../guides/producing.md), [consuming](../guides/consuming.md)).",
    "penstock.client.sync": "Clients that block, with the messages and errors of `penstock.client`.",
    "penstock.testing": "The broker in a test ([guide](../guides/testing.md)).",
    "penstock.spark": "The data pipeline, with the extra `spark` ([guide](../guides/spark.md)).",
}


def render_names() -> str:
    lines = [INTRODUCTION]
    for package, about in PACKAGES.items():
        module = importlib.import_module(package)
        lines += [f"## {package}\n", f"{about}\n"]
        things = {name: getattr(module, name) for name in module.__all__}
        for name, thing in things.items():
            if inspect.isclass(thing) and not issubclass(thing, Exception):
                lines += [f"### {package}.{name}\n", *_class(name, thing)]
        functions = [(name, thing) for name, thing in things.items() if inspect.isfunction(thing)]
        if functions:
            lines += ["### Functions\n", *table(("Name", "Meaning"), (_function(*each) for each in functions))]
        errors = [
            (name, thing) for name, thing in things.items() if inspect.isclass(thing) and issubclass(thing, Exception)
        ]
        if errors:
            lines += ["### Errors\n", *table(("Name", "Is a", "Meaning"), (_error(*each) for each in errors))]
        rest = [
            (f"`{name}`", _constant(thing))
            for name, thing in things.items()
            if not inspect.isclass(thing) and not inspect.isfunction(thing)
        ]
        if rest:
            lines += ["### Values\n", *table(("Name", "Meaning"), rest)]
    return "\n".join(lines)


def _class(name: str, thing: type) -> Iterator[str]:
    yield f"    {name}{_call(thing)}\n"
    yield f"{first_paragraph(inspect.getdoc(thing) or '')}\n"
    rows = list(_members(thing))
    if rows:
        yield from table(("Name", "Meaning"), rows)


def _members(thing: type) -> Iterator[tuple[str, str]]:
    """Its public methods and properties, in the order of the source, those of bases of ours last."""
    seen = set()
    for owner in thing.__mro__:
        if not owner.__module__.startswith("penstock."):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(function):
                waits = "await " if inspect.iscoroutinefunction(function) else ""
                yield (
                    f"`{waits}{name}{_call(function, skip_first=not isinstance(member, staticmethod))}`",
                    _said(thing, name),
                )
            elif isinstance(member, property):
                yield f"`{name}`", _said(thing, name)


def _said(thing: type, name: str) -> str:
    """What the docstring of a member says; that of a client that blocks may leave it to the one on asyncio."""
    alike = getattr(getattr(penstock.client, thing.__name__, None), name, None)
    return first_sentence(inspect.getdoc(getattr(thing, name)) or inspect.getdoc(alike) or "")


def _function(name: str, function: Any) -> tuple[str, str]:
    return f"`{name}{_call(function)}`", first_paragraph(inspect.getdoc(function) or "")


def _error(name: str, error: type) -> tuple[str, str, str]:
    return f"`{name}`", f"`{error.__mro__[1].__name__}`", first_paragraph(inspect.getdoc(error) or "")


def _constant(thing: object) -> str:
    if isinstance(thing, dict):
        return "; ".join(f"`{name}={value}`" for name, value in thing.items())
    return first_paragraph(inspect.getdoc(type(thing)) or "")


def _call(thing: Any, *, skip_first: bool = False) -> str:
    """The parameters of a call, without types, and with defaults that can be read."""
    parameters = list(inspect.signature(thing).parameters.values())[1 if skip_first else 0 :]
    shown: list[str] = []
    is_keyword = False
    for each in parameters:
        if (
            each.kind is each.KEYWORD_ONLY
            and not is_keyword
            and not any(p.kind is p.VAR_POSITIONAL for p in parameters)
        ):
            shown.append("*")
        is_keyword = each.kind is each.KEYWORD_ONLY
        prefix = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        shown.append(f"{prefix}{each.name}{_default(each)}")
        if each.kind is each.POSITIONAL_ONLY and (
            each is parameters[-1] or parameters[parameters.index(each) + 1].kind is not each.POSITIONAL_ONLY
        ):
            shown.append("/")
    return f"({', '.join(shown)})"


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return ""
    plain = isinstance(parameter.default, str | int | float | bool | bytes | None | tuple)
    return f"={parameter.default!r}" if plain else "=…"
