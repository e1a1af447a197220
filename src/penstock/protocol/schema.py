"""Defines the language of the schema tables: a message is a class, a field is a row of it.

    class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
        group_id: str = row("string", "0+", default="")

The class holds values; `codec` turns them into bytes and back, by functions compiled from the rows on first use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, dataclass_transform

# What a row may hold: a primitive's name, a nested message, or a list of one of these, which is an array of it.
RowType: TypeAlias = "str | type[Message] | Sequence[str] | Sequence[type[Message]]"


class Records(Protocol):
    """What a field of record bytes may hold: a buffer, or anything with a length that the sender knows how to send
    (a range of a file). Decoding gives a memoryview into the bytes received."""

    def __len__(self) -> int: ...


ZERO_UUID: Final = bytes(16)


class Versions(NamedTuple):
    """An inclusive range of versions, written as in `3-13`, `9+`, `2` or `none`."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        if text in ("", "none"):
            return cls(1, 0)
        first, dash, last = text.partition("-")
        if dash:
            return cls(int(first), int(last))
        return cls(int(first[:-1]), 32767) if first.endswith("+") else cls(int(first), int(first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


@dataclass(slots=True, frozen=True)
class Row:
    """One field of a message: how it is written, in which versions, and its default."""

    kind: RowType
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: Any
    factory: Callable[[], Any] | None
    ignorable: bool
    compact: bool

    @property
    def element(self) -> "str | type[Message]":
        return self.kind if isinstance(self.kind, str | type) else self.kind[0]

    @property
    def is_array(self) -> bool:
        return not isinstance(self.kind, str | type)

    def default_value(self) -> Any:
        return self.factory() if self.factory else self.default


def row(
    kind: RowType,
    versions: str,
    *,
    default: Any = None,
    factory: Callable[[], Any] | None = None,
    nullable: str = "none",
    tag: int | None = None,
    tagged: str = "none",
    ignorable: bool = False,
    compact: bool = True,
) -> Any:
    """A field. `ignorable`: in a version without it, a value is left out instead of refused. `compact=False`: keeps the
    older form of its length even in flexible versions (only the request header has such a field)."""
    return Row(
        kind=kind,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tagged=Versions.parse(tagged),
        tag=tag,
        default=default,
        factory=factory,
        ignorable=ignorable,
        compact=compact,
    )


@dataclass(slots=True, frozen=True)
class Schema:
    """What a message's class was declared with."""

    rows: Mapping[str, Row]
    versions: Versions
    flexible: Versions
    key: int | None


@dataclass_transform(kw_only_default=True, eq_default=True, field_specifiers=(row,))
class MessageType(type):
    """Makes the slots of a message out of its rows."""

    schema: Schema

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str = "0+",
        flexible: str = "none",
    ) -> "MessageType":
        rows = {field: value for field, value in namespace.items() if isinstance(value, Row)}
        body = {field: value for field, value in namespace.items() if field not in rows}
        made = super().__new__(mcs, name, bases, {**body, "__slots__": tuple(rows)})
        made.schema = Schema(rows, Versions.parse(versions), Versions.parse(flexible), key)
        return made


class Message(metaclass=MessageType):
    """Values by field name. All of them have defaults; arrays are any sequence, identifiers of topics 16 bytes."""

    __slots__ = ()

    def __init__(self, **values: Any) -> None:
        # The first instance of a class compiles its constructor; from then on it is called directly.
        _compile_constructor(type(self))(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, field), getattr(other, field)) for field in type(self).schema.rows)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        cls = type(self)
        told = [
            f"{field}={value!r}"
            for field, row in cls.schema.rows.items()
            if not _same(value := getattr(self, field), row.default_value())
        ]
        return f"{cls.__qualname__}({', '.join(told)})"


def _same(left: Any, right: Any) -> bool:
    """Equality in which an array is an array, whether it came as a list or a tuple."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _compile_constructor(cls: type[Message]) -> Callable[..., None]:
    known: dict[str, Any] = {"made_later": object()}
    parameters, body = [], []
    for field, row in cls.schema.rows.items():
        known[f"default_{field}"] = row.factory or row.default
        if row.factory:
            parameters.append(f"{field}=made_later")
            body.append(f"self.{field} = default_{field}() if {field} is made_later else {field}")
        else:
            parameters.append(f"{field}=default_{field}")
            body.append(f"self.{field} = {field}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    source = f"def __init__({signature}):\n    " + "\n    ".join(body or ["pass"])
    exec(compile(source, f"<{cls.__qualname__}>", "exec"), known)
    constructor: Callable[..., None] = known["__init__"]
    cls.__init__ = constructor  # type: ignore[method-assign]
    return constructor
