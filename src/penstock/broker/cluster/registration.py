"""A registration makes this broker a member of the cluster, and keeps it one: who it is, where it is reached, and what
it may still do while it is out of contact with the metadata store."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.broker.cluster.racing import race
from penstock.broker.cluster.state import ClusterState
from penstock.machines.cluster import FLUSHED, ClusterImage
from penstock.machines.cluster_records import Listeners
from penstock.machines.log_ends import LogEnds
from penstock.machines.registration import encode_details
from penstock.metadata.store import Contact, MetadataStore, SessionLostError, StoreRefusedError

log = logging.getLogger(__name__)

# Hosts that mean every address of a machine: there is no connecting to them from another.
WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
# How long a broker waits for its own registration before it says so.
PATIENCE_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.1


class BrokerRegistration:
    """`register`, wait until that is `served`, and `keep` it. `fenced` is called with True when others may have taken
    this broker for dead, and with False once it is registered again."""

    def __init__(
        self,
        store: MetadataStore,
        cluster: ClusterState,
        *,
        node_id: int,
        folder: str,
        rack: str | None,
        listeners: Callable[[], Listeners],
        fenced: Callable[[bool], None],
        offline_logs: Callable[[], int] = lambda: 0,
        log_ends: Callable[[], LogEnds] = dict,
        flush: str = FLUSHED,
    ) -> None:
        """`flush` is the `penstock.flush` of the broker's own file."""
        self.broker_epoch = -1
        self.contact = Contact.GOOD
        self.is_fenced = False
        self._store = store
        self._cluster = cluster
        self._node_id = node_id
        self._folder = folder
        self._rack = rack
        self._listeners = listeners
        self._fenced = fenced
        self._offline_logs = offline_logs
        self._log_ends = log_ends
        self._flush = flush
        self._session = 0
        # Whether this process has found its logs as they were left, or has made them known to the cluster since.
        self._was_clean = False
        # Whether they may lack what was not flushed, and the cluster does not know that yet.
        self._may_lack_unflushed = False

    async def register(self, *, was_clean: bool, may_lack_unflushed: bool = False) -> None:
        """Become a member, once there is contact. The controller sees that, and writes it down."""
        self._was_clean = was_clean
        self._may_lack_unflushed = may_lack_unflushed
        listeners = self._listeners()
        for name, (host, port) in listeners.items():
            if host in WILDCARDS:
                raise StoreRefusedError(
                    f"listener {name} would be advertised as {host or '*'}:{port}, where no other machine can connect; "
                    "set advertised.listeners to a name or an address of this machine"
                )
        details = encode_details(
            listeners=listeners,
            rack=self._rack,
            was_clean=was_clean,
            offline_logs=self._offline_logs(),
            log_ends=self._log_ends(),
            may_lack_unflushed=may_lack_unflushed,
            flush=self._flush,
        )
        while True:
            session = self._store.session
            try:
                self.broker_epoch = await self._store.register(self._node_id, details, folder=self._folder)
            except SessionLostError:
                await self._wait_for_another_session()
            else:
                self._session = session
                return

    async def _wait_for_another_session(self) -> None:
        """What comes before the first registration may last longer than a session: the recovery of a large log, on a
        slow disk or a busy machine."""
        if self._store.contact is not Contact.LOST:
            await asyncio.sleep(RETRY_SECONDS)
            return
        log.warning("out of contact with the metadata store for a whole session: this broker waits, and registers then")
        while self._store.contact is Contact.LOST:
            await self._store.wait_for_contact(Contact.LOST, self._store.session)

    async def served(self) -> None:
        """Wait until the metadata log has the registration, and this broker has followed it so far."""
        while True:
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._cluster.until(self._is_registered)
                self._was_clean, self._may_lack_unflushed = True, False
                return
            except TimeoutError:
                log.warning(
                    "this broker waits until the controller has registered it",
                    extra={"controller_id": self._cluster.image.controller_id, "index": self._cluster.index},
                )

    async def keep(self) -> None:
        """Stay a member as long as there is contact, and become one again afterwards."""
        while True:
            contact, session = self._store.contact, self._store.session
            self._note(contact)
            waiting = self._store.wait_for_contact(contact, session)
            if contact is Contact.GOOD and (self.is_fenced or session != self._session):
                await race(waiting, self._register_again())
            else:
                await waiting

    async def _register_again(self) -> None:
        """The session is a new one, or others may believe so. Once the cluster knew of this process, all logs are as it
        knew them, as after a clean stop."""
        self._fence()
        await self.register(was_clean=self._was_clean, may_lack_unflushed=self._may_lack_unflushed)
        await self.served()
        self.is_fenced = False
        self._fenced(False)
        log.warning("registered again", extra={"broker_epoch": self.broker_epoch})

    def _is_registered(self, image: ClusterImage) -> bool:
        known = image.brokers.get(self._node_id)
        return known is not None and known.broker_epoch == self.broker_epoch

    def _note(self, contact: Contact) -> None:
        if contact is self.contact:
            return
        self.contact = contact
        match contact:
            case Contact.GOOD:
                log.info("in contact with the metadata store again")
            case Contact.DOUBTFUL:
                log.warning(
                    "out of contact with the metadata store: this broker serves what it leads, and takes on nothing new"
                )
            case Contact.LOST:
                log.error(
                    "out of contact with the metadata store for a whole session: records are taken with acks=all only"
                )
                self._fence()

    def _fence(self) -> None:
        if not self.is_fenced:
            self.is_fenced = True
            self._fenced(True)
