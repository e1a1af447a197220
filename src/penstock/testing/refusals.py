"""Builds the reply that refuses a request, whatever the API: the error stands wherever the reply has a place for
one."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schema import Message

_ASKED: Final[Mapping[str, Sequence[str]]] = {
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "groups_names", "resources"),
    "topics": ("topics",),
    "partition_responses": ("partition_data",),
    "partitions": ("partitions", "partition_indexes"),
    "groups": ("groups",),
    "members": ("members",),
    "coordinators": ("coordinator_keys",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
}
"""Where the request has what an array of replies answers, by the name of that array."""
_RENAMED: Final = {"partition_index": "partition"}
_NAMES: Final = ("name", "key", "group_id", "partition_index")


def refusal(request: Message, response: type[Message], version: int, code: ErrorCode) -> Message:
    """A reply to a request in which all that was asked for has failed."""
    return _refused(request, response, version, code)


def _refused(asked: Any, kind: type[Message], version: int, code: ErrorCode) -> Message:
    values: dict[str, Any] = {}
    for field, row in kind.schema.rows.items():
        if version not in row.versions:
            continue
        if field == "error_code":
            values[field] = code
        elif field == "error_message":
            values[field] = f"{code.name}, by a fault that the test asked for"
        elif isinstance(row.element, str):
            if not row.is_array and (found := _identity(asked, field, kind)) is not None:
                values[field] = found
        elif row.is_array and _has_error(row.element):
            values[field] = [_refused(item, row.element, version, code) for item in _items(asked, field)]
    return kind(**values)


def _identity(asked: Any, field: str, kind: type[Message]) -> Any:
    """The field that says which part of the request this is the reply to."""
    if isinstance(asked, Message):
        own = type(asked).schema.rows
        name = field if field in own else _RENAMED.get(field, "")
        return getattr(asked, name) if name in own else None
    return asked if field == next((name for name in _NAMES if name in kind.schema.rows), None) else None


def _items(asked: Any, field: str) -> Sequence[Any]:
    for name in _ASKED.get(field, ()):
        items = getattr(asked, name, None)
        if items:
            found: Sequence[Any] = items
            return found
    return ()


def _has_error(kind: type[Message]) -> bool:
    rows = kind.schema.rows
    return "error_code" in rows or any(
        not isinstance(row.element, str) and _has_error(row.element) for row in rows.values()
    )
