"""`read_image` reads what a metadata store holds, for programs that take no part in the cluster."""

from penstock.machines.cluster import ClusterImage
from penstock.machines.cluster_records import DamagedRecordsError, UnknownRecordError
from penstock.machines.log_reader import LogReader
from penstock.metadata.store import EntriesDroppedError, MetadataStore, StoreError, StoreRefusedError

# Each attempt finds a newer snapshot than the one before, so that two are enough but for a controller in a great hurry.
ATTEMPTS = 5


async def read_image(store: MetadataStore) -> ClusterImage:
    """The image as of the last entry of an open store."""
    return (await read_prefix(store))[0]


async def read_prefix(store: MetadataStore) -> tuple[ClusterImage, LogReader]:
    """The image as of some entry, the last there is at some moment of the call, and the reader that has come to it.
    Brokers may run meanwhile."""
    for _ in range(ATTEMPTS):
        try:
            return await _read_once(store)
        except EntriesDroppedError:
            # A newer snapshot has replaced what was to be read next.
            continue
        except (DamagedRecordsError, UnknownRecordError) as error:
            raise StoreRefusedError(str(error)) from error
    raise StoreError("the metadata log changes faster than it can be read; try again")


async def _read_once(store: MetadataStore) -> tuple[ClusterImage, LogReader]:
    image, reader = ClusterImage(), LogReader()
    snapshot = await store.load_snapshot()
    if snapshot is not None:
        image.apply_all(reader.read_snapshot(*snapshot))
    while entries := await store.entries(reader.index):
        for index, entry in entries:
            image.apply_all(reader.read(index, entry))
    return image, reader
