"""Metadata pieces are what replies to Metadata say of each topic, encoded once for each version and kept until that
changes: most replies say again what others said before."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from penstock.machines.cluster import ImageChange
from penstock.protocol.codec import encoder, stepwise_encoder
from penstock.protocol.framing import frame
from penstock.protocol.schemas.headers import ResponseHeader
from penstock.protocol.schemas.metadata import MetadataResponse, MetadataResponseTopic
from penstock.protocol.session import Request
from penstock.protocol.varint import uvarint

# The memory that all pieces may take. Ten thousand partitions take less than half a megabyte.
MAX_BYTES: Final = 16 * 1024 * 1024
_FIRST_FLEXIBLE: Final = 9
_COUNT: Final = Struct(">i")
# Chunks of a topic that are encoded before others have their turn.
_CHUNKS_AT_ONCE: Final = 2000


@dataclass(frozen=True, slots=True)
class Piece:
    """A topic's part of a reply. `flawed` is as much of it as reports errors, for those who count them."""

    data: bytes
    flawed: MetadataResponseTopic | None


class MetadataPieces:
    """Pieces by topic and version. `image_changed` has to be called before a reply is made of the changed image."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._by_topic: dict[bytes, dict[int, Piece]] = {}
        self._bytes = 0
        # How often anything was dropped: what was begun before that may be old.
        self.drops = 0

    def get(self, topic_id: bytes, version: int) -> Piece | None:
        return self._by_topic.get(topic_id, {}).get(version)

    def keep(self, topic_id: bytes, version: int, piece: Piece, *, drops: int) -> None:
        """Keep a piece whose making began after this many drops, unless there were others since. The oldest pieces make
        room for it."""
        if drops != self.drops or self.get(topic_id, version) is not None:
            return
        self._by_topic.setdefault(topic_id, {})[version] = piece
        self._bytes += len(piece.data)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._by_topic)))

    def image_changed(self, change: ImageChange) -> None:
        self.drops += bool(change.partitions or change.deleted)
        for topic_id in change.partitions:
            self._drop(topic_id)
        for topic in change.deleted.values():
            self._drop(topic.topic_id)

    def _drop(self, topic_id: bytes) -> None:
        self._bytes -= sum(len(piece.data) for piece in self._by_topic.pop(topic_id, {}).values())


def make_piece(topic: MetadataResponseTopic, version: int) -> Generator[None, None, Piece]:
    """Encode what is said of a topic, in slices. Only within a reply is the form of a topic known."""
    chunks: list[Any] = []
    due = _CHUNKS_AT_ONCE
    for _ in stepwise_encoder(MetadataResponse, version)(MetadataResponse(topics=[topic]), chunks):
        if len(chunks) >= due:
            due = len(chunks) + _CHUNKS_AT_ONCE
            yield
    data, tail = b"".join(chunks), _tail_bytes(version)
    data = data[len(_encoded(MetadataResponse(), version)) - tail : len(data) - tail]
    failed = [partition for partition in topic.partitions if partition.error_code]
    is_flawed = bool(topic.error_code or failed)
    return Piece(data, MetadataResponseTopic(error_code=topic.error_code, partitions=failed) if is_flawed else None)


def write_reply(request: Request, response: MetadataResponse, pieces: Sequence[Piece]) -> list[Any]:
    """The framed chunks of a response, which has no topics but these."""
    version = request.version
    chunks: list[Any] = []
    header = ResponseHeader(correlation_id=request.correlation_id)
    encoder(ResponseHeader, request.api.response_header_version(version))(header, chunks)
    around = _encoded(response, version)
    end = len(around) - _tail_bytes(version)
    is_flexible = version >= _FIRST_FLEXIBLE
    begin = end - (1 if is_flexible else _COUNT.size)
    count = uvarint(len(pieces) + 1) if is_flexible else _COUNT.pack(len(pieces))
    return frame([b"".join([*chunks, around[:begin], count, *(piece.data for piece in pieces), around[end:]])])


def flawed(pieces: Iterable[Piece]) -> list[MetadataResponseTopic]:
    return [piece.flawed for piece in pieces if piece.flawed is not None]


def _encoded(response: MetadataResponse, version: int) -> bytes:
    chunks: list[Any] = []
    encoder(MetadataResponse, version)(response, chunks)
    return b"".join(chunks)


def _tail_bytes(version: int) -> int:
    """The bytes of a reply after its topics: authorized operations (8 to 10), an error (13), tagged fields (from 9)."""
    return (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (1 if version >= _FIRST_FLEXIBLE else 0)
