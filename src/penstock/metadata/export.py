"""An export is the metadata of a cluster in one file, outside its store: it outlives the store.

     0          4         6         10
    ┌──────────┬─────────┬─────────┬──────────────────────────────────────────────────┐
    │ "PSEX"   │ version │ CRC-32  │ msgpack [penstock, cluster_id, time_ms, snapshot] │
    │ 4 bytes  │ u16     │ u32     │                                                  │
    └──────────┴─────────┴─────────┴──────────────────────────────────────────────────┘

Big-endian. The checksum covers the version and the body. The snapshot is one of the metadata log. The secret of the
cluster is not in it: an import makes another.
"""

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import Final

import msgspec

from penstock import __version__
from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import DamagedRecordsError, UnknownRecordError, decode, encode
from penstock.machines.log_reader import LogReader
from penstock.metadata.reading import read_prefix
from penstock.metadata.store import MetadataStore, StoreRefusedError

VERSION: Final = 1
_MAGIC: Final = b"PSEX"
_HEADER: Final = Struct(">4sHI")


@dataclass(frozen=True, slots=True)
class Export:
    """The state of a cluster as of an entry of its metadata log, and when that was read."""

    cluster_id: str
    time_ms: int
    index: int
    controller_epoch: int
    image: ClusterImage


async def read_export(store: MetadataStore, *, now_ms: int) -> Export:
    """What an open store has. Brokers may run meanwhile: it is the state as of some entry."""
    image, reader = await read_prefix(store)
    return Export(await store.cluster_id(), now_ms, reader.index, reader.controller_epoch, image)


def encode_export(export: Export) -> bytes:
    snapshot = encode(export.image.snapshot(), controller_epoch=export.controller_epoch, index=export.index)
    body = _encoder.encode(_Body(__version__, export.cluster_id, export.time_ms, snapshot))
    return _HEADER.pack(_MAGIC, VERSION, _checksum(VERSION, body)) + body


def decode_export(data: bytes, *, where: str) -> Export:
    """Raises StoreRefusedError, which names the file and says what to do."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise StoreRefusedError(
            f"{where} is no export of a cluster's metadata: name a file that `penstock cluster export` has written"
        )
    if len(data) < _HEADER.size:
        raise _damaged(where, "it ends in its first bytes")
    _, version, checksum = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if _checksum(version, body) != checksum:
        raise _damaged(where, "its checksum is wrong")
    if version > VERSION:
        raise StoreRefusedError(
            f"{where} has format {version}, and this Penstock reads up to {VERSION}: use the one that has written it"
        )
    try:
        found = _decoder.decode(body)
        index = decode(found.snapshot).index
        image, reader = ClusterImage(), LogReader()
        image.apply_all(reader.read_snapshot(index, found.snapshot))
    except UnknownRecordError as error:
        raise StoreRefusedError(f"{where} cannot be read by this Penstock: {error}") from None
    except (DamagedRecordsError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(where, str(error)) from None
    return Export(found.cluster_id, found.time_ms, index, reader.controller_epoch, image)


class _Body(msgspec.Struct, array_like=True):
    """Later versions of Penstock may add items at the end, with a default."""

    penstock: str
    cluster_id: str
    time_ms: int
    snapshot: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Body)


def _checksum(version: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(version.to_bytes(2, "big")))


def _damaged(where: str, reason: str) -> StoreRefusedError:
    return StoreRefusedError(f"{where} is damaged ({reason}): import another export of this cluster")
