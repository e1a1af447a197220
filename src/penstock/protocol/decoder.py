"""Writes, for one message class and version, the function that reads it from bytes.

Runs of fixed fields become one `struct` call, nested structs are inlined as loops, and every length and count is held
against the bytes that remain before anything is allocated for it.
"""

from collections.abc import Callable
from struct import Struct, error, unpack_from
from typing import Any

from penstock.protocol.errors import DecodeError
from penstock.protocol.schema import Message, Row
from penstock.protocol.source import FIXED, WIDTH, Source
from penstock.protocol.varint import read_uvarint

Decoder = Callable[[Any, int], tuple[Any, int]]


def compile_decoder(cls: type[Message], version: int) -> Decoder:
    """`decode(buffer, position) -> (message, position after it)`, raising nothing but DecodeError."""
    return _DecoderWriter(cls, version).write()


def minimum_size(cls: type[Message], version: int, flexible: bool) -> int:
    """How few bytes a struct can take on the wire: what bounds the count of an array of them."""
    size = 1 if flexible else 0
    for row in cls.schema.rows.values():
        if version not in row.versions or version in row.tagged:
            continue
        if row.is_array:
            size += 1 if flexible else 4
        elif isinstance(row.element, str):
            size += WIDTH.get(row.element) or (1 if flexible and row.compact else 2 if row.element == "string" else 4)
        else:
            size += 1 if version in row.nullable else minimum_size(row.element, version, flexible)
    return size


class _DecoderWriter:
    """In the text it writes: `b` is the buffer, `p` the position, `e` the end, `n` a length or count just read."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = version in cls.schema.flexible
        self.source = Source()
        self.source.constants.update(
            {
                "new": object.__new__,
                "read_uvarint": read_uvarint,
                "skip_tags": skip_tags,
                "unpack_from": unpack_from,
                "struct_error": error,
                "DecodeError": DecodeError,
            }
        )
        self.run: list[tuple[str, str]] = []

    def write(self) -> Decoder:
        source, title = self.source, f"{self.cls.__name__} v{self.version}"
        with source.block("def decode(b, p):"):
            with source.block("try:"):
                source.line("e = len(b)")
                message = self.struct(self.cls)
                self.flush()
                source.line(f"return {message}, p")
            with source.block("except (IndexError, struct_error):"):
                source.line(f"raise DecodeError('{title}: it ends at byte %d, in the middle' % len(b)) from None")
            with source.block("except UnicodeDecodeError as bad:"):
                source.line(f"raise DecodeError('{title}: a string is not UTF-8: %s' % bad.reason) from None")
            with source.block("except DecodeError as bad:"):
                source.line(f"raise DecodeError('{title}: %s' % bad) from None")
        return source.compile("decode", f"decode {title}")

    def struct(self, cls: type[Message]) -> str:
        """Read a struct into a new local, whose name is returned. A run of fixed fields may still be pending."""
        source = self.source
        made = source.name("m")
        source.line(f"{made} = new({source.constant('Class', cls)})")
        tagged: dict[int, tuple[str, Row]] = {}
        for field, row in cls.schema.rows.items():
            target = f"{made}.{field}"
            if self.version in row.tagged:
                assert row.tag is not None
                tagged[row.tag] = (target, row)
            elif self.version in row.versions:
                self.value(target, row)
                continue
            source.line(f"{target} = {self.default(row)}")
        if self.flexible:
            self.tags(tagged)
        return made

    def default(self, row: Row) -> str:
        if row.factory:
            return f"{self.source.constant('Class', row.factory)}()"
        return repr(row.default) if row.default != bytes(16) else self.source.constant("zero", row.default)

    def value(self, target: str, row: Row) -> None:
        if row.is_array:
            self.array(target, row)
        elif not isinstance(row.element, str):
            self.nested(target, row, row.element)
        elif row.element in FIXED:
            self.run.append((FIXED[row.element], target))
        else:
            self.text_or_bytes(target, row.element, nullable=self.version in row.nullable, compact=row.compact)

    def flush(self) -> None:
        """Read the pending run of fixed fields with one call."""
        if not self.run:
            return
        layout = Struct(">" + "".join(letter for letter, _ in self.run))
        unpack = self.source.constant("unpack", layout.unpack_from)
        targets = ", ".join(target for _, target in self.run)
        comma = "," if len(self.run) == 1 else ""
        self.source.line(f"{targets}{comma} = {unpack}(b, p)")
        self.source.line(f"p += {layout.size}")
        self.run = []

    def length(self, letter: str, *, compact: bool = True) -> None:
        """Read a length into `n`, -1 for null: a varint of one more in flexible versions, a fixed integer in others."""
        if self.flexible and compact:
            self.flush()
            self.uvarint("n")
            self.source.line("n -= 1")
        else:
            self.run.append((letter, "n"))
            self.flush()

    def uvarint(self, target: str) -> None:
        self.source.line(f"{target} = b[p]")
        self.source.line("p += 1")
        with self.source.block(f"if {target} > 127:"):
            self.source.line(f"{target}, p = read_uvarint(b, p - 1)")

    def refuse(self, problem: str) -> str:
        return f"raise DecodeError('{problem}')"

    def null(self, target: str, *, nullable: bool, compact: bool = True) -> None:
        """The branch for n < 0."""
        with self.source.block("if n < 0:"):
            field = target.partition(".")[2] or "an element"
            if nullable:
                if not (self.flexible and compact):
                    with self.source.block("if n < -1:"):
                        self.source.line(self.refuse(f"a negative length of {field}"))
                self.source.line(f"{target} = None")
            else:
                self.source.line(self.refuse(f"{field} may not be null"))

    def text_or_bytes(self, target: str, kind: str, *, nullable: bool, compact: bool) -> None:
        source = self.source
        self.length("h" if kind == "string" else "i", compact=compact)
        self.null(target, nullable=nullable, compact=compact)
        with source.block("else:"):
            source.line("q = p + n")
            with source.block("if q > e:"):
                source.line(self.refuse("a length is larger than what remains"))
            match kind:
                case "string":
                    source.line(f"{target} = str(b[p:q], 'utf-8')")
                case "bytes":
                    source.line(f"{target} = bytes(b[p:q])")
                case "records":
                    source.line(f"{target} = b[p:q]")
            source.line("p = q")

    def nested(self, target: str, row: Row, cls: type[Message]) -> None:
        if self.version not in row.nullable:
            self.source.line(f"{target} = {self.struct(cls)}")
            return
        self.run.append(("b", "n"))
        self.flush()
        with self.source.block("if n < 0:"):
            self.source.line(f"{target} = None")
        with self.source.block("else:"):
            made = self.struct(cls)
            self.flush()
            self.source.line(f"{target} = {made}")

    def array(self, target: str, row: Row) -> None:
        source = self.source
        self.length("i")
        self.null(target, nullable=self.version in row.nullable)
        with source.block("elif n == 0:"):
            source.line(f"{target} = ()")
        with source.block("else:"):
            element = row.element
            if not isinstance(element, str):
                smallest = max(1, minimum_size(element, self.version, self.flexible))
            else:
                smallest = WIDTH.get(element) or (1 if self.flexible else 2 if element == "string" else 4)
            with source.block(f"if n > (e - p) // {smallest}:" if smallest > 1 else "if n > e - p:"):
                source.line(self.refuse("an array is longer than what remains"))
            if element in FIXED:
                source.line(f"q = p + {smallest} * n")
                if element == "uuid":
                    source.line(f"{target} = [bytes(b[i : i + 16]) for i in range(p, q, 16)]")
                else:
                    source.line(f"{target} = unpack_from('>%d{FIXED[element]}' % n, b, p)")
                source.line("p = q")
                return
            items, index = source.name("items"), source.name("i")
            source.line(f"{items} = [None] * n")
            source.line(f"{target} = {items}")
            with source.block(f"for {index} in range(n):"):
                if isinstance(element, str):
                    self.text_or_bytes(f"{items}[{index}]", element, nullable=False, compact=True)
                else:
                    made = self.struct(element)
                    self.flush()
                    source.line(f"{items}[{index}] = {made}")

    def tags(self, tagged: dict[int, tuple[str, Row]]) -> None:
        """The tagged fields after a struct (KIP-482): known ones are read, others passed over."""
        source = self.source
        self.flush()
        source.line("n = b[p]")
        source.line("p += 1")
        with source.block("if n:"):
            if not tagged:
                source.line("p = skip_tags(b, p - 1)")
                return
            with source.block("if n > 127:"):
                source.line("n, p = read_uvarint(b, p - 1)")
            tag, end = source.name("tag"), source.name("q")
            with source.block("for _ in range(n):"):
                self.uvarint(tag)
                self.uvarint("n")
                source.line(f"{end} = p + n")
                with source.block(f"if {end} > e:"):
                    source.line(self.refuse("a tagged field is longer than what remains"))
                branch = "if"
                for number, (target, row) in sorted(tagged.items()):
                    with source.block(f"{branch} {tag} == {number}:"):
                        self.value(target, row)
                        self.flush()
                        with source.block(f"if p != {end}:"):
                            source.line(self.refuse(f"tagged field {number} has another length than it says"))
                    branch = "elif"
                with source.block("else:"):
                    source.line(f"p = {end}")


def skip_tags(buffer: memoryview, position: int) -> int:
    """The position after tagged fields of which we know none."""
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise DecodeError("a tagged field is longer than what remains")
    return position
