"""Writes, for one message class and version, the function that turns it into a list of byte chunks.

Record bytes go into the list as they are, never copied, so whatever has a length can stand there: a memoryview, or a
range of a file that the connection sends by itself.
"""

from collections.abc import Callable, Iterator
from struct import Struct, error, pack
from typing import Any

from penstock.protocol.errors import EncodeError
from penstock.protocol.schema import Message, Row
from penstock.protocol.source import FIXED, Source
from penstock.protocol.varint import uvarint

Encoder = Callable[[Any, list[Any]], None]
StepwiseEncoder = Callable[[Any, list[Any]], Iterator[None]]

# Varints of one byte, which nearly all lengths are.
SHORT_VARINTS = tuple(bytes([number]) for number in range(128))


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    """`encode(message, chunks)` appends the message's bytes to the list, raising nothing but EncodeError."""
    return _EncoderWriter(cls, version).write()


def compile_stepwise_encoder(cls: type[Message], version: int) -> StepwiseEncoder:
    """Like `compile_encoder`, as a generator that stops after each message of each array, however deep: between two
    steps of a long message the caller can do something else."""
    return _EncoderWriter(cls, version, stepwise=True).write()


class _EncoderWriter:
    """In the text it writes: `o` is the message, `w` appends a chunk, `n` is a length or count."""

    def __init__(self, cls: type[Message], version: int, *, stepwise: bool = False) -> None:
        self.cls = cls
        self.version = version
        self.stepwise = stepwise
        self.flexible = version in cls.schema.flexible
        self.source = Source()
        self.source.constants.update(
            {
                "short": SHORT_VARINTS,
                "uvarint": uvarint,
                "pack": pack,
                "struct_error": error,
                "EncodeError": EncodeError,
            }
        )
        self.append = "w"
        self.run: list[tuple[str, str]] = []

    def write(self) -> Callable[..., Any]:
        source, title = self.source, f"{self.cls.__name__} v{self.version}"
        with source.block("def encode(o, chunks):"):
            with source.block("try:"):
                source.line("w = chunks.append")
                self.struct("o", self.cls)
                self.flush()
                if self.stepwise:
                    # Also of a message without arrays this makes a generator.
                    source.line("yield")
            with source.block("except (struct_error, AttributeError, TypeError, UnicodeEncodeError) as bad:"):
                source.line(f"raise EncodeError('{title}: a value does not fit its field: %s' % bad) from bad")
        return source.compile("encode", f"encode {title}")

    def struct(self, value: str, cls: type[Message]) -> None:
        tagged: dict[int, tuple[str, Row]] = {}
        for field, row in cls.schema.rows.items():
            item = f"{value}.{field}"
            if self.version in row.tagged:
                assert row.tag is not None
                tagged[row.tag] = (item, row)
            elif self.version in row.versions:
                self.value(item, row)
            elif not row.ignorable:
                self.refuse_unless_default(item, row)
        if self.flexible:
            self.tags(tagged)

    def refuse_unless_default(self, item: str, row: Row) -> None:
        with self.source.block(f"if {self.differs(item, row)}:"):
            field = item.partition(".")[2]
            problem = f"{self.cls.__name__} v{self.version} has no field {field}: leave it out or use another version"
            self.source.line(f"raise EncodeError('{problem}')")

    def differs(self, item: str, row: Row) -> str:
        """An expression that is true when a value is not the field's default."""
        if row.factory:
            assert not isinstance(row.element, str)
            inner = row.element.schema.rows.items()
            return " or ".join(self.differs(f"{item}.{field}", inner_row) for field, inner_row in inner)
        if row.default is None:
            return f"{item} is not None"
        if row.is_array:
            return f"{item} is None or len({item})"
        return f"{item} != {self.source.constant('default', row.default)}"

    def value(self, item: str, row: Row) -> None:
        if row.is_array:
            self.array(item, row)
        elif not isinstance(row.element, str):
            self.nested(item, row, row.element)
        elif row.element in FIXED:
            self.fixed(item, row.element)
        else:
            self.text_or_bytes(item, row.element, nullable=self.version in row.nullable, compact=row.compact)

    def fixed(self, item: str, kind: str) -> None:
        if kind == "uuid":
            # `struct` would cut or pad it in silence, and name another topic.
            with self.source.block(f"if len({item}) != 16:"):
                self.source.line("raise TypeError('a uuid is 16 bytes')")
        self.run.append((FIXED[kind], item))

    def flush(self) -> None:
        """Write the pending run of fixed fields with one call."""
        if not self.run:
            return
        layout = Struct(">" + "".join(letter for letter, _ in self.run))
        packed = self.source.constant("pack", layout.pack)
        self.source.line(f"{self.append}({packed}({', '.join(item for _, item in self.run)}))")
        self.run = []

    def length(self, number: str, letter: str, *, compact: bool = True) -> None:
        """Write a length that stands in the local `number`, -1 for null."""
        if self.flexible and compact:
            self.flush()
            self.uvarint(number, plus=1)
        else:
            self.run.append((letter, number))

    def uvarint(self, number: str, *, plus: int = 0) -> None:
        more = f" + {plus}" if plus else ""
        self.source.line(
            f"{self.append}(short[{number}{more}] if {number} < {128 - plus} else uvarint({number}{more}))"
        )

    def text_or_bytes(self, item: str, kind: str, *, nullable: bool, compact: bool = True) -> None:
        source = self.source
        number, chunk = source.name("n"), source.name("c")
        source.line(f"{chunk} = {item}")
        encoded = f"{chunk}.encode()" if kind == "string" else chunk
        if nullable:
            with source.block(f"if {chunk} is None:"):
                source.line(f"{number} = -1")
                source.line(f"{chunk} = b''")
            with source.block("else:"):
                if kind == "string":
                    source.line(f"{chunk} = {encoded}")
                source.line(f"{number} = len({chunk})")
        else:
            if kind == "string":
                source.line(f"{chunk} = {encoded}")
            source.line(f"{number} = len({chunk})")
        self.length(number, "h" if kind == "string" else "i", compact=compact)
        self.flush()
        source.line(f"{self.append}({chunk})")

    def nested(self, item: str, row: Row, cls: type[Message]) -> None:
        source = self.source
        if self.version not in row.nullable:
            inner = source.name("o")
            source.line(f"{inner} = {item}")
            self.struct(inner, cls)
            return
        self.flush()
        inner = source.name("o")
        source.line(f"{inner} = {item}")
        with source.block(f"if {inner} is None:"):
            source.line(f"{self.append}(b'\\xff')")
        with source.block("else:"):
            source.line(f"{self.append}(b'\\x01')")
            self.struct(inner, cls)
            self.flush()

    def array(self, item: str, row: Row) -> None:
        source = self.source
        items, number = source.name("items"), source.name("n")
        source.line(f"{items} = {item}")
        if self.version in row.nullable:
            source.line(f"{number} = -1 if {items} is None else len({items})")
        else:
            source.line(f"{number} = len({items})")
        self.length(number, "i")
        self.flush()
        with source.block(f"if {number} > 0:"):
            element = row.element
            if element in FIXED and element != "uuid":
                source.line(f"{self.append}(pack('>%d{FIXED[element]}' % {number}, *{items}))")
                return
            inner = source.name("o")
            with source.block(f"for {inner} in {items}:"):
                if not isinstance(element, str):
                    self.struct(inner, element)
                elif element == "uuid":
                    self.fixed(inner, element)
                else:
                    self.text_or_bytes(inner, element, nullable=False)
                self.flush()
                if self.stepwise and not isinstance(element, str):
                    source.line("yield")

    def tags(self, tagged: dict[int, tuple[str, Row]]) -> None:
        """The tagged fields that differ from their default, in the order of their tags (KIP-482)."""
        source = self.source
        self.flush()
        if not tagged:
            source.line(f"{self.append}(b'\\x00')")
            return
        present = []
        for _, (item, row) in sorted(tagged.items()):
            present.append(source.name("t"))
            source.line(f"{present[-1]} = 1 if {self.differs(item, row)} else 0")
        source.line(f"n = {' + '.join(present)}")
        source.line(f"{self.append}(short[n])")
        with source.block("if n:"):
            for flag, (tag, (item, row)) in zip(present, sorted(tagged.items()), strict=True):
                with source.block(f"if {flag}:"):
                    self.tag(tag, item, row)

    def tag(self, tag: int, item: str, row: Row) -> None:
        source = self.source
        body, outer = source.name("body"), self.append
        source.line(f"{body} = []")
        self.append = f"{body}.append"
        self.value(item, row)
        self.flush()
        self.append = outer
        source.line(f"{body} = b''.join({body})")
        source.line(f"n = len({body})")
        source.line(f"{outer}({uvarint(tag)!r})")
        self.uvarint("n")
        source.line(f"{outer}({body})")
