"""The generator of schema tables, on a jar made by hand."""

import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.protocol.codec import decode, encode
from tools import generate_schemas
from tools.generate_schemas import (
    Definition,
    default_of,
    message_lines,
    read_definitions,
    row_line,
    snake_case,
    structs_inside_out,
    write_index,
    write_module,
)

SHIP_REQUEST = """// A license stands here.
{
  "apiKey": 7, "type": "request", "listeners": ["broker"],
  "name": "ShipRequest",
  // Version 1 adds the crew.
  "validVersions": "0-2", "flexibleVersions": "2+",
  "fields": [
    { "name": "ShipName", "type": "string", "versions": "0+", // as painted
      "about": "See https://ships.example/names." },
    { "name": "CrewIds", "type": "[]int32", "versions": "1+", "nullableVersions": "2+", "ignorable": true },
    { "name": "Holds", "type": "[]Hold", "versions": "0+", "fields": [
      { "name": "Cargo", "type": "[]Crate", "versions": "0+" },
      { "name": "Reserve", "type": "Crate", "versions": "2+", "taggedVersions": "2+", "tag": 0 }
    ]}
  ],
  "commonStructs": [
    { "name": "Crate", "versions": "0+", "fields": [
      { "name": "TopicId", "type": "uuid", "versions": "0+" },
      { "name": "WeightKg", "type": "int64", "versions": "0+", "default": "-1" }
    ]}
  ]
}
"""
SHIP_RESPONSE = """{
  "apiKey": 7, "type": "response", "name": "ShipResponse", "validVersions": "0-2", "flexibleVersions": "2+",
  "fields": [
    { "name": "Holds", "type": "[]Hold", "versions": "0+", "fields": [
      { "name": "ErrorCode", "type": "int16", "versions": "0+" }
    ]},
    { "name": "Records", "type": "records", "versions": "0+", "nullableVersions": "0+" }
  ]
}
"""


@pytest.fixture
def definitions(tmp_path: Path) -> dict[str, Definition]:
    jar = tmp_path / "clients.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("common/message/ShipRequest.json", SHIP_REQUEST)
        archive.writestr("common/message/ShipResponse.json", SHIP_RESPONSE)
        archive.writestr("common/message/README.md", "no definition")
        archive.writestr("org/other/Thing.json", "{ broken")
    return read_definitions(jar)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "schemas"
    folder.mkdir()
    monkeypatch.setattr(generate_schemas, "TARGET", folder)
    return folder


def field(name: str = "Field", type: str = "int32", versions: str = "0+", **more: Any) -> Definition:
    return {"name": name, "type": type, "versions": versions, **more}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Name", "name"),
        ("TopicId", "topic_id"),
        ("ISRVersion", "isr_version"),
        ("ZkMigrationReady", "zk_migration_ready"),
        ("Sha256Hash", "sha256_hash"),
    ],
)
def test_names_become_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_definitions_are_read_without_their_comments(definitions: dict[str, Definition]) -> None:
    assert definitions.keys() == {"ShipRequest", "ShipResponse"}
    assert definitions["ShipRequest"]["apiKey"] == 7
    assert definitions["ShipRequest"]["fields"][0]["about"] == "See https://ships.example/names."


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (field(), "default=0"),
        (field(default="-1"), "default=-1"),
        (field(default="0x7fffffffffffffff", type="int64"), "default=9223372036854775807"),
        (field(default=5), "default=5"),
        (field(type="bool"), "default=False"),
        (field(type="bool", default="true"), "default=True"),
        (field(type="float64"), "default=0.0"),
        (field(type="string"), "default=''"),
        (field(type="string", default="x"), "default='x'"),
        (field(type="string", default="null", nullableVersions="0+"), "default=None"),
        (field(type="uuid"), "default=ZERO_UUID"),
        (field(type="bytes"), 'default=b""'),
        (field(type="records"), 'default=b""'),
        (field(type="records", nullableVersions="0+"), "default=None"),
        (field(type="[]int32"), "default=()"),
        (field(type="[]int32", default="null", nullableVersions="0+"), "default=None"),
        (field(type="Crate"), "factory=Crate"),
        (field(type="Crate", default="null", nullableVersions="0+"), "default=None"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["type"],
)
def test_a_default_is_the_one_defined_or_the_zero_of_its_type(definition: Definition, expected: str) -> None:
    element = definition["type"].removeprefix("[]")
    assert default_of(definition, element, is_array=element != definition["type"]) == expected


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (field("LeaderId"), 'leader_id: int = row("int32", "0+", default=0)'),
        (
            field("Rack", "string", "1+", nullableVersions="2+", ignorable=True),
            """rack: str | None = row("string", "1+", default='', nullable="2+", ignorable=True)""",
        ),
        (
            field("Nodes", "[]int32", "3+", tag=4, taggedVersions="3+"),
            'nodes: Sequence[int] = row(["int32"], "3+", default=(), tag=4, tagged="3+")',
        ),
        (
            field("ClientId", "string", "1+", flexibleVersions="none"),
            """client_id: str = row("string", "1+", default='', compact=False)""",
        ),
        (field("Cargo", "[]Crate"), 'cargo: Sequence[ShipCrate] = row([ShipCrate], "0+", default=())'),
        (
            field("Lid", "Crate", ignorable="true"),
            'lid: ShipCrate = row(ShipCrate, "0+", factory=ShipCrate, ignorable=True)',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value["name"],
)
def test_a_field_becomes_a_row(definition: Definition, expected: str) -> None:
    assert row_line(definition, {"Crate": "ShipCrate"}) == expected


def test_structs_come_before_those_that_hold_them_and_common_ones_once(definitions: dict[str, Definition]) -> None:
    structs = structs_inside_out(definitions["ShipRequest"])
    assert list(structs) == ["Crate", "Hold"]
    assert [each["name"] for each in structs["Crate"]] == ["TopicId", "WeightKg"]


def test_a_struct_whose_name_two_messages_use_is_told_apart(definitions: dict[str, Definition]) -> None:
    lines = list(message_lines(definitions["ShipResponse"], shared={"Hold"}))
    assert "class ShipResponseHold(Message):" in lines
    assert '    holds: Sequence[ShipResponseHold] = row([ShipResponseHold], "0+", default=())' in lines


def test_fields_of_our_own_stand_behind_kafkas_with_tags_that_it_will_not_use(
    definitions: dict[str, Definition], monkeypatch: pytest.MonkeyPatch
) -> None:
    added = {"ShipRequest": [("Flag", "bool", "false")], "Hold": [("Draught", "int64", "-1"), ("Rats", "int64", "-1")]}
    monkeypatch.setattr(generate_schemas, "EXTENSIONS", added)
    lines = list(message_lines(definitions["ShipRequest"], shared=set()))
    hold = lines.index("class Hold(Message):")
    assert lines[hold + 3 : hold + 5] == [
        '    draught: int = row("int64", "2+", default=-1, tag=20000, tagged="2+", ignorable=True)',
        '    rats: int = row("int64", "2+", default=-1, tag=20001, tagged="2+", ignorable=True)',
    ]
    assert lines[-1] == '    flag: bool = row("bool", "2+", default=False, tag=20000, tagged="2+", ignorable=True)'


def test_the_prose_of_the_definitions_stays_behind(target: Path, definitions: dict[str, Definition]) -> None:
    write_module("ships", list(definitions.values()))
    text = (target / "ships.py").read_text()
    assert "painted" not in text
    assert "ships.example" not in text
    assert "license" not in text


def test_what_is_written_is_a_module_whose_messages_make_the_round_trip(
    target: Path, definitions: dict[str, Definition]
) -> None:
    write_module("ships", list(definitions.values()))
    ships = imported(target / "ships.py")
    assert (ships.ShipRequest.schema.key, ships.ShipRequest.schema.versions) == (7, (0, 2))
    assert ships.ShipRequestHold.schema.rows["cargo"].element is ships.Crate
    crate = ships.Crate(topic_id=b"x" * 16)
    hold = ships.ShipRequestHold(cargo=[crate], reserve=ships.Crate(weight_kg=9))
    request = ships.ShipRequest(ship_name="Argo", crew_ids=None, holds=[hold])
    assert decode(ships.ShipRequest, 2, encode(request, 2)) == request
    response = ships.ShipResponse(holds=[ships.ShipResponseHold(error_code=3)])
    assert decode(ships.ShipResponse, 0, encode(response, 0)) == response


def test_a_module_imports_what_it_uses_and_no_more(target: Path) -> None:
    plain = {"name": "Plain", "validVersions": "0", "flexibleVersions": "none", "fields": []}
    write_module("plain", [plain])
    text = (target / "plain.py").read_text()
    assert "from penstock.protocol.schema import Message\n" in text
    assert "Sequence" not in text
    assert imported(target / "plain.py").Plain() is not None


def test_the_index_names_the_module_of_every_api(
    target: Path, definitions: dict[str, Definition], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate_schemas, "FAMILIES", {"ships": ["Ship"]})
    write_index(definitions)
    assert imported(target / "__init__.py").INDEX == {7: ("ships", "Ship")}


def imported(path: Path) -> ModuleType:
    name = f"generated_{path.stem.strip('_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module
