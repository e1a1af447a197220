"""Write the schema tables of `penstock.protocol.schemas` from the message definitions inside a kafka-clients jar.

    python -m tools.generate_schemas kafka-clients-4.2.0.jar

Only facts are taken over (names, types, versions, defaults, tags); the definitions' prose is left out.
"""

import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "penstock" / "protocol" / "schemas"

# Which APIs we have tables for, by the module they go into. Left out: what only KRaft's controllers say to each other.
FAMILIES = {
    "acls": ["DescribeAcls", "CreateAcls", "DeleteAcls"],
    "cluster": ["DescribeCluster", "UnregisterBroker", "UpdateFeatures"],
    "configs": ["DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "ListConfigResources"],
    "consumer_groups": ["ConsumerGroupHeartbeat", "ConsumerGroupDescribe"],
    "fetch": ["Fetch"],
    "group_offsets": ["OffsetCommit", "OffsetFetch", "OffsetDelete"],
    "groups": [
        "FindCoordinator",
        "JoinGroup",
        "Heartbeat",
        "LeaveGroup",
        "SyncGroup",
        "DescribeGroups",
        "ListGroups",
        "DeleteGroups",
    ],
    "log_dirs": ["AlterReplicaLogDirs", "DescribeLogDirs"],
    "metadata": ["Metadata", "DescribeTopicPartitions"],
    "offsets": ["ListOffsets", "OffsetForLeaderEpoch"],
    "produce": ["Produce"],
    "quotas": ["DescribeClientQuotas", "AlterClientQuotas"],
    "reassignments": ["AlterPartitionReassignments", "ListPartitionReassignments"],
    "replication": ["AlterPartition", "Envelope", "BrokerHeartbeat", "AllocateProducerIds"],
    "sasl": ["SaslHandshake", "SaslAuthenticate"],
    "scram": ["DescribeUserScramCredentials", "AlterUserScramCredentials"],
    "share_groups": [
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareFetch",
        "ShareAcknowledge",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
    ],
    "share_state": [
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
        "ReadShareGroupStateSummary",
    ],
    "streams_groups": ["StreamsGroupHeartbeat", "StreamsGroupDescribe"],
    "telemetry": ["GetTelemetrySubscriptions", "PushTelemetry"],
    "tokens": ["CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"],
    "topics": ["CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords", "ElectLeaders"],
    "transactions": [
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "WriteTxnMarkers",
        "TxnOffsetCommit",
        "DescribeProducers",
        "DescribeTransactions",
        "ListTransactions",
    ],
    "versions": ["ApiVersions"],
}
# Tables that are no API: headers, and what clients and coordinators put inside bytes fields and control records.
PARTS = {
    "headers": ["RequestHeader", "ResponseHeader"],
    "embedded": ["ConsumerProtocolSubscription", "ConsumerProtocolAssignment", "EndTxnMarker"],
}

# What Penstock says beside what Kafka defines, by the message or struct that has it: tagged fields, with tags that
# Kafka will not come to. Others skip them, as they must (KIP-482); a response has them only for a client that has
# asked.
EXTENSIONS = {
    "DescribeLogDirsRequest": [("Compaction", "bool", "false")],
    "DescribeLogDirsPartition": [("CleanBytes", "int64", "-1"), ("DirtyBytes", "int64", "-1")],
    # The listener that the client came by, or that there is no client: the broker asks for itself. And the index in the
    # metadata log up to which the forwarding broker has to read before it answers.
    "EnvelopeRequest": [("ListenerName", "string", ""), ("OfBroker", "bool", "false")],
    "EnvelopeResponse": [("MetadataIndex", "int64", "0")],
}
EXTENSION_TAGS_FROM = 20_000

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "uuid": "bytes",
    "bytes": "bytes",
    "records": "Records",
} | dict.fromkeys(["int8", "int16", "uint16", "int32", "uint32", "int64"], "int")

Definition = dict[str, Any]


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    jar = Path(sys.argv[1])
    definitions = read_definitions(jar)
    TARGET.mkdir(exist_ok=True)
    for old in TARGET.glob("*.py"):
        old.unlink()
    for family, apis in FAMILIES.items():
        messages = [definitions[api + kind] for api in apis for kind in ("Request", "Response")]
        write_module(family, messages)
    for family, names in PARTS.items():
        write_module(family, [definitions[name] for name in names])
    write_index(definitions)
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(TARGET)], check=True)
    print(f"{sum(len(apis) for apis in FAMILIES.values())} APIs written to {TARGET.relative_to(Path.cwd())}")


def read_definitions(jar: Path) -> dict[str, Definition]:
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        texts = [archive.read(name).decode() for name in names]
    # The definitions are JSON with comments, which stand on lines of their own or after a comma.
    parsed = [json.loads(re.sub(r"(?m)^\s*//.*$|(?<=,)\s*//.*$", "", text)) for text in texts]
    return {definition["name"]: definition for definition in parsed}


def write_module(family: str, messages: list[Definition]) -> None:
    about = family.replace("_", " ")
    lines = [f'"""Schema tables: {about}. Written by tools/generate_schemas.py; edit that instead."""', ""]
    names = Counter(name for message in messages for name in structs_inside_out(message))
    shared = {name for name, times in names.items() if times > 1}
    body = [line for message in messages for line in [*message_lines(message, shared), "", ""]]
    text = "\n".join(body)
    if "Sequence[" in text:
        lines += ["from collections.abc import Sequence", ""]
    imports = [name for name in ("ZERO_UUID", "Message", "Records", "row") if re.search(rf"\b{name}\b", text)]
    lines += [f"from penstock.protocol.schema import {', '.join(imports)}", "", ""]
    (TARGET / f"{family}.py").write_text("\n".join(lines) + text.rstrip() + "\n")


def message_lines(message: Definition, shared: set[str]) -> Iterator[str]:
    """The classes of a message and of the structs in it. A struct whose name another message of the module has too gets
    the message's name in front."""
    structs = structs_inside_out(message)
    names = {name: message["name"] + name if name in shared else name for name in structs}
    for name, fields in structs.items():
        yield f"class {names[name]}(Message):"
        yield from row_lines(fields, names)
        yield from ("", "")
    options = [f'versions="{message["validVersions"]}"', f'flexible="{message["flexibleVersions"]}"']
    if "apiKey" in message:
        options.insert(0, f"key={message['apiKey']}")
    yield f"class {message['name']}(Message, {', '.join(options)}):"
    yield from row_lines(message["fields"] + extensions(message["name"], message), names)


def extensions(name: str, message: Definition) -> list[Definition]:
    """The fields of our own in a message or in a struct of it."""
    versions = message["flexibleVersions"]
    return [
        {
            "name": field,
            "type": kind,
            "versions": versions,
            "taggedVersions": versions,
            "tag": EXTENSION_TAGS_FROM + number,
            "default": default,
            "ignorable": True,
        }
        for number, (field, kind, default) in enumerate(EXTENSIONS.get(name, []))
    ]


def structs_inside_out(message: Definition) -> dict[str, list[Definition]]:
    """The fields of every nested struct by its name, the innermost first: a class is there before a row names it."""
    common = {struct["name"]: struct for struct in message.get("commonStructs", [])}
    found: dict[str, list[Definition]] = {}

    def visit(fields: list[Definition]) -> None:
        for field in fields:
            name = field["type"].removeprefix("[]")
            if name in PYTHON_TYPES or name in found:
                continue
            inner = field.get("fields") or common[name]["fields"]
            visit(inner)
            found[name] = inner + extensions(name, message)

    visit(message["fields"])
    return found


def row_lines(fields: list[Definition], names: dict[str, str]) -> Iterator[str]:
    yield from (f"    {row_line(field, names)}" for field in fields)
    if not fields:
        yield "    pass"


def row_line(field: Definition, names: dict[str, str]) -> str:
    element = field["type"].removeprefix("[]")
    is_array = element != field["type"]
    element = names.get(element, element)
    nullable = field.get("nullableVersions", "none")
    python = PYTHON_TYPES.get(element, element)
    written = f'"{element}"' if element in PYTHON_TYPES else element
    if is_array:
        python, written = f"Sequence[{python}]", f"[{written}]"
    if nullable != "none":
        python += " | None"
    options = [written, f'"{field["versions"]}"', default_of(field, element, is_array)]
    if nullable != "none":
        options.append(f'nullable="{nullable}"')
    if "tag" in field:
        options.append(f'tag={field["tag"]}, tagged="{field["taggedVersions"]}"')
    if field.get("ignorable") in (True, "true"):
        options.append("ignorable=True")
    if field.get("flexibleVersions") == "none":
        options.append("compact=False")
    return f"{snake_case(field['name'])}: {python} = row({', '.join(options)})"


def default_of(field: Definition, element: str, is_array: bool) -> str:
    """The default in Python: the one defined, or the zero of the type."""
    told = field.get("default")
    if told == "null":
        return "default=None"
    if is_array:
        return "default=()"
    if element == "bool":
        return f"default={str(told).lower() == 'true'}"
    if element.startswith(("int", "uint")):
        return f"default={int(str(told), 0) if told is not None else 0}"
    if element not in PYTHON_TYPES:
        return f"factory={element}"
    zeros = {"float64": "0.0", "string": repr(told or ""), "uuid": "ZERO_UUID", "bytes": 'b""', "records": "None"}
    if element == "records" and field.get("nullableVersions", "none") == "none":
        return 'default=b""'
    return f"default={zeros[element]}"


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def write_index(definitions: dict[str, Definition]) -> None:
    keys = {definitions[f"{api}Request"]["apiKey"]: (family, api) for family, apis in FAMILIES.items() for api in apis}
    lines = [
        '"""Schema tables of every API, in a module for each family. Written by tools/generate_schemas.py."""',
        "",
        "# API key: the module that holds its tables, and its name. Modules are imported when they are asked for.",
        "INDEX = {",
        *(f'    {key}: ("{family}", "{api}"),' for key, (family, api) in sorted(keys.items())),
        "}",
    ]
    (TARGET / "__init__.py").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
