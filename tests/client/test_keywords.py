"""Settings as typed keywords: they are those of the tables, and a type checker knows them."""

import ast
import dataclasses
import inspect
import types
import typing
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from mypy import api

from penstock.client import keywords, settings
from penstock.client.cluster.security import SECURITY_SETTINGS
from penstock.client.keywords import ClientKeywords, ConsumerKeywords, ProducerKeywords, SecurityKeywords
from penstock.client.settings import ClientSettings, ConsumerSettings, ProducerSettings

ROOT = Path(__file__).parents[2]

WIDER = {"acks", "bootstrap_servers", "partition_assignment_strategy"}
"""Settings that may be given in more forms than they are kept in."""

OWN_PARAMETERS = {"security", "partitioner"}
"""What is no keyword of its own: made of others, or named in the signature."""


def parts(kind: Any) -> set[Any]:
    """The types of a union, and the values of a literal."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        return set().union(*map(parts, get_args(kind)))
    return set(get_args(kind)) if get_origin(kind) is typing.Literal else {kind}


@pytest.mark.parametrize(
    ("keyword", "setting"),
    [(ClientKeywords, ClientSettings), (ProducerKeywords, ProducerSettings), (ConsumerKeywords, ConsumerSettings)],
)
def test_the_keywords_of_a_client_are_its_settings_with_their_types(keyword: Any, setting: Any) -> None:
    given, kept = get_type_hints(keyword), get_type_hints(setting)
    names = {each.name for each in dataclasses.fields(setting)} - OWN_PARAMETERS
    assert given.keys() - get_type_hints(SecurityKeywords).keys() == names
    for name in names:
        assert parts(given[name]) == parts(kept[name]) or name in WIDER, name


def test_the_keywords_of_security_are_those_that_it_reads() -> None:
    assert {name.replace("_", ".") for name in get_type_hints(SecurityKeywords)} == SECURITY_SETTINGS


@pytest.mark.parametrize("module", [settings, keywords], ids=["settings", "security"])
def test_every_setting_is_described_below_its_definition(module: ModuleType) -> None:
    described = {"ClientSettings", "ProducerSettings", "ConsumerSettings", "SecurityKeywords"}
    for kind in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(kind, ast.ClassDef) and kind.name in described:
            for each, below in zip(kind.body, kind.body[1:], strict=False):
                if isinstance(each, ast.AnnAssign):
                    assert isinstance(below, ast.Expr), ast.unparse(each)
                    assert ast.unparse(below.value).rstrip("'\"").endswith("."), ast.unparse(each)


PROGRAM = """
from typing import Any
import penstock.client.sync as sync
from penstock.client import JSON, STRING, Admin, Consumer, Json, Producer

class Order:
    paid: bool

async def right(settings: dict[str, Any]) -> None:
    Producer("localhost:9092", linger_ms=3, acks=1, enable_idempotence=False, sasl_username="me")
    Producer(settings)
    Producer(**settings)
    Consumer("orders", group_id="billing", value_deserializer=JSON, **settings)
    Admin("localhost:9092", request_timeout_ms=1)
    reads: Consumer[bytes, Order] = Consumer("orders", value_deserializer=Json(Order))
    for order in await reads.poll():
        assert order.value is not None and order.key is not None
        print(order.value.paid, order.key.hex())
    async for message in Consumer("orders", value_deserializer=JSON, key_deserializer=STRING):
        print(message.value["paid"], (message.key or "").upper())
    for message in sync.Consumer("orders", value_deserializer=JSON, key_deserializer=STRING):
        print(message.value["paid"], (message.key or "").upper())
    for one in await Consumer("orders").poll():
        assert one.value is not None
        print(one.value.hex())

def wrong() -> None:
    Producer("localhost:9092", linger_mss=3)
    Consumer("orders", group_idd="billing")
    Admin(request_timeout=1)
    sync.Producer(linger_mss=3)
    sync.Consumer("orders", auto_offset_reset="first")
    Producer("localhost:9092", compression_type="zip")
"""


def test_a_type_checker_refuses_a_misspelt_setting_and_lets_json_be_anything(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # With the cache of the project's own checks this takes two seconds.
    told, errors, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(program)])
    first_wrong = PROGRAM[: PROGRAM.index("def wrong")].count("\n") + 2
    wrong = {int(line.split(":")[1]) for line in told.splitlines() if ": error:" in line}
    assert not errors
    assert wrong == set(range(first_wrong, first_wrong + 6)), told
    assert 'Unexpected keyword argument "linger_mss"' in told
    assert 'did you mean "linger_ms"?' in told


def test_two_types_are_enough_for_a_consumer_also_when_a_program_runs() -> None:
    from penstock.client import Consumer
    from penstock.client.sync import Consumer as Blocking

    assert get_args(Consumer[bytes, str])[:2] == (bytes, str)
    assert get_args(Blocking[bytes, str])[:2] == (bytes, str)
    assert get_args(Consumer[bytes]) != ()
