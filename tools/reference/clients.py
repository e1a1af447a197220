"""Writes the page of client settings, from the classes that hold them and what stands below each of their fields."""

import ast
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from penstock.client import keywords, settings
from penstock.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tools.reference.tables import table

INTRODUCTION = """\
# Settings of clients

<!-- Written by `python -m tools.reference` from src/penstock/client/settings.py and keywords.py. Change those. -->

`Producer`, `Consumer` and `Admin`, on asyncio and blocking, take these as keywords, with underscores, or in a dict that
comes first, with dots, as other Kafka clients have them:

    Producer("localhost:9092", linger_ms=20)
    Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 20})

Values in a dict may be text. Type checkers know the keywords; an unknown name is an error that says what you may have
meant. On the command line they are `-X NAME=VALUE`, and on Spark `kafka.NAME`.
"""

SECTIONS = {"All clients": ClientSettings, "Producers": ProducerSettings, "Consumers": ConsumerSettings}

WITHOUT_EFFECT = """\
These belong to other Kafka clients. They are accepted, so that a dict of theirs can be used, and do nothing:"""

PROFILES = """\
`profile="latency"` and `profile="throughput"`, and on both sides `delivery="at_least_once"` and
`delivery="at_most_once"`, set several of them together. What you set yourself wins over a profile, and is refused where
it contradicts a delivery ([delivery semantics](../guides/delivery.md)).
"""


def render_settings() -> str:
    known = _documented(settings)
    lines = [INTRODUCTION]
    for title, kind in SECTIONS.items():
        own = [each for each in fields(kind) if each.name in kind.__annotations__ and each.name != "security"]
        lines += [f"## {title}\n", *table(("Name", "Type", "Default", "Meaning"), _rows(kind, own, known))]
    lines += ["## TLS and SASL\n", "None of these is set unless you set it.\n", *_security()]
    lines += ["## Several at once\n", PROFILES, *_profiles()]
    lines += ["## Without effect\n", WITHOUT_EFFECT, _listed(settings._WITHOUT_EFFECT)]
    return "\n".join(lines)


def _rows(kind: type, own: Iterable["Field[Any]"], known: dict[str, str]) -> Iterator[tuple[str, ...]]:
    types = get_type_hints(kind)
    for each in own:
        default = each.default if each.default_factory is MISSING else each.default_factory()
        yield f"`{dotted(each.name)}`", _type(types[each.name]), _value(default), _meaning(known[each.name])


def _security() -> Iterator[str]:
    known = _documented(keywords)
    types = get_type_hints(keywords.SecurityKeywords)
    rows = ((f"`{dotted(name)}`", _type(types[name]), _meaning(known[name])) for name in types)
    yield from table(("Name", "Type", "Meaning"), rows)


def _profiles() -> Iterator[str]:
    named = {**settings._PROFILES, **settings._DELIVERIES}
    names = list(dict.fromkeys(name for each in named.values() for name in each))
    yield from table(
        ("Name", *(f"`{name}`" for name in named)),
        ((f"`{name}`", *(_value(each[name]) if name in each else "" for each in named.values())) for name in names),
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) + ".\n"


def dotted(name: str) -> str:
    """Kafka's form of a keyword."""
    return name.replace("_", ".")


def _documented(module: Any) -> dict[str, str]:
    """What stands below each field of a module's classes, by the field's name."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, node.body[1:], strict=False):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                        found[name] = " ".join(said.split())
    return found


def _meaning(text: str) -> str:
    """Fields name each other with underscores, as keywords do; the page has dots."""
    for name in (*_FIELDS, *get_type_hints(keywords.SecurityKeywords)):
        text = text.replace(f"`{name}`", f"`{dotted(name)}`")
    return text


_FIELDS = [each.name for kind in (ProducerSettings, ConsumerSettings) for each in fields(kind)]


def _type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is list:
        return "names, separated by commas"
    parts = [part for part in get_args(kind) if part is not NoneType] or [kind]
    names = {int: "int", float: "number", str: "text", bool: "bool"}
    return " or ".join(
        _type(part) if get_args(part) else names.get(part, f"`{part.__module__}.{part.__name__}`") for part in parts
    )


def _value(value: object) -> str:
    match value:
        case None:
            return "not set"
        case "":
            return "empty"
        case bool():
            return f"`{str(value).lower()}`"
        case int() if value % 1024 == 0 and value >= 1024:
            unit = next(unit for unit in (1024**3, 1024**2, 1024) if value % unit == 0)
            return f"`{value}` ({value // unit} { {1024: 'KiB', 1024**2: 'MiB', 1024**3: 'GiB'}[unit] })"
        case float() if value.is_integer():
            return f"`{int(value)}`"
        case list():
            return f"`{','.join(value)}`"
        case _:
            return f"`{value}`"
