"""Says what a partition becomes when brokers come and go: its leader, its in-sync replicas, and those that are eligible
to lead though they are not in sync (KIP-966).

Every replica that is in sync or eligible has all committed records. A replica that leaves the in-sync ones is eligible
while there are fewer of these than acks=all needs, because nothing is committed meanwhile. Replicas that are being
added do not count for that number until all of them are in sync, and until then lead only if they are. What a rule
returns is the whole new state of the partition; None if nothing changes.

After an import no replica is known to have everything: none is in sync, and none is eligible. Such a partition has no
leader until all its replicas have reported where their logs end; then one whose log goes farthest leads
(docs/decisions/0024-export-and-import.md).
"""

from collections.abc import Callable, Collection, Container, Mapping

from msgspec.structs import replace

from penstock.machines.cluster_records import NO_LEADER, PartitionImage, ReassignedPartition
from penstock.machines.log_ends import LogEnd

MIN_ISR_OF_THREE = 2
"""How many in-sync replicas acks=all needs if nothing is set, and a partition has three replicas or more."""

LEADER_EPOCH_STEP = 1_000_000
"""How far the leader epoch of an imported partition moves on, beyond all that its replicas have reported: more than
there can have been elections that left nothing in a log. Clients may know of these."""


def needed(min_isr: int | None, replicas: int) -> int:
    """How many in-sync replicas acks=all needs, of what is set for the topic: no more than there are replicas."""
    if min_isr is None:
        return MIN_ISR_OF_THREE if replicas > MIN_ISR_OF_THREE else 1
    return min(min_isr, replicas)


def needed_by(partition: PartitionImage, min_isr: int | None) -> int:
    """How many in-sync replicas acks=all needs of a partition, in the state that it has."""
    return needed(min_isr, len(partition.replicas) - len(partition.adding))


def broker_left(
    partition: PartitionImage,
    broker_id: int,
    live: Container[int],
    min_isr: int | None = None,
    *,
    has_lost_its_log: bool = False,
) -> PartitionImage | None:
    """A broker was lost, or has restarted; `live` are the others that are alive. It is no longer in sync, and if its
    log is lost, not eligible either. The last that has everything stays in sync: the partition waits for it."""
    isr = tuple(replica for replica in partition.isr if replica != broker_id)
    elr = _eligible(partition, isr, min_isr)
    if has_lost_its_log:
        elr = tuple(replica for replica in elr if replica != broker_id)
    if not isr and elr in ((), (broker_id,)):
        isr, elr = (partition.isr, ()) if broker_id in partition.isr else (elr or partition.elr, ())
    leader = NO_LEADER if partition.leader == broker_id else partition.leader
    return _settled(partition, isr, elr, leader, _Without(live, broker_id), min_isr=min_isr)


def broker_came(
    partition: PartitionImage, broker_id: int, min_isr: int | None = None, *, others: Container[int] = ()
) -> PartitionImage | None:
    """A broker has recovered its log. A partition without a leader is led by a replica that has everything."""
    if partition.leader != NO_LEADER:
        return None
    candidates = [replica for replica in partition.replicas if replica == broker_id or replica in others]
    return _settled(partition, partition.isr, partition.elr, NO_LEADER, candidates, min_isr=min_isr)


def isr_altered(partition: PartitionImage, isr: Collection[int], min_isr: int | None = None) -> PartitionImage:
    """The leader says who is in sync. The state changes even if that is what it was: older proposals are void then."""
    ordered = tuple(replica for replica in partition.replicas if replica in isr)
    partition = _with_all_added(partition, ordered)
    elr = _eligible(partition, ordered, min_isr)
    return replace(partition, isr=ordered, elr=elr, partition_epoch=partition.partition_epoch + 1)


def replicas_added(partition: PartitionImage, replicas: tuple[int, ...]) -> PartitionImage | None:
    """The partition gets these replicas, in this order of preference: all that it has, and others that are to copy its
    log."""
    assert {*partition.replicas} <= {*replicas}, f"{replicas} lacks some of {partition.replicas}"
    if replicas == partition.replicas:
        return None
    adding = tuple(replica for replica in replicas if replica in partition.adding or replica not in partition.replicas)
    return _with_replicas(partition, replicas, adding)


def addition_cancelled(partition: PartitionImage) -> PartitionImage | None:
    """Of the replicas that are being added those go that do not have everything yet. The others stay replicas.

    A new leader epoch begins. Otherwise a broker that has not read yet that it is to delete its replica could fetch on,
    and come into sync if it was added once more meanwhile."""
    gone = {*partition.adding} - {*partition.isr, *partition.elr}
    if not gone:
        return None
    kept = _with_replicas(
        partition,
        tuple(replica for replica in partition.replicas if replica not in gone),
        tuple(replica for replica in partition.adding if replica not in gone),
    )
    return replace(_with_all_added(kept, partition.isr), leader_epoch=partition.leader_epoch + 1)


def given_up(
    partition: PartitionImage, broker_id: int, live: Container[int], min_isr: int | None = None
) -> PartitionImage | None:
    """A replica that is alive has found damage in its log, and begins again with an empty one: it is no longer in sync,
    and does not lead. It stays what it is while too few others are in sync.

    A new leader epoch begins. Otherwise what it had fetched before could bring it into sync once more, and it would
    then begin again though it is counted on."""
    isr = tuple(replica for replica in partition.isr if replica != broker_id)
    leader = partition.leader
    if leader == broker_id:
        leader = _first(partition, lambda replica: replica in isr and replica in live)
    if leader == NO_LEADER or len(isr) < needed_by(partition, min_isr):
        return None
    return replace(
        partition,
        isr=isr,
        elr=(),
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def min_isr_changed(partition: PartitionImage, min_isr: int | None) -> PartitionImage | None:
    """Acks=all needs another number of in-sync replicas from now on. With enough of them more is committed, which the
    eligible ones lack."""
    elr = _eligible(partition, partition.isr, min_isr)
    if elr == partition.elr:
        return None
    return replace(partition, elr=elr, partition_epoch=partition.partition_epoch + 1)


def preferred_leads(partition: PartitionImage, live: Container[int]) -> PartitionImage | None:
    """The first of the replicas leads, if it is in sync and alive."""
    preferred = partition.replicas[0]
    if preferred == partition.leader or preferred not in partition.isr or preferred not in live:
        return None
    return _moved(partition, partition.isr, partition.elr, preferred)


def awaits_reports(partition: PartitionImage) -> bool:
    """Whether the partition was imported, and no replica is known to have everything. No other rule leads to that."""
    return not partition.isr and not partition.elr


def reporters(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas that have to report where their logs end: all but those that were added since the import."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def ends_reported(partition: PartitionImage, ends: Mapping[int, LogEnd]) -> PartitionImage | None:
    """Where the logs of replicas end that are alive. Once all have reported, those are in sync whose logs go farthest:
    every committed record is in the log of some replica, and so in theirs."""
    owing = reporters(partition)
    if not awaits_reports(partition) or not all(replica in ends for replica in owing):
        return None
    return _led_by_farthest(partition, {replica: ends[replica] for replica in owing})


def elected_unclean(
    partition: PartitionImage, live: Container[int], ends: Mapping[int, LogEnd] | None = None
) -> PartitionImage | None:
    """An operator prefers a leader that may lack committed records to none: the first replica that is alive leads, and
    one that has only just been added if there is no other. Of an imported partition it is the one whose log goes
    farthest, of those that have reported that."""
    if partition.leader != NO_LEADER:
        return None
    if awaits_reports(partition):
        found = {replica: end for replica, end in (ends or {}).items() if replica in reporters(partition)}
        return _led_by_farthest(partition, found) if found else None
    leader = _first(partition, lambda replica: replica in live and replica not in partition.adding)
    if leader == NO_LEADER:
        leader = _first(partition, lambda replica: replica in live)
    return None if leader == NO_LEADER else _moved(_with_all_added(partition, (leader,)), (leader,), (), leader)


def led_anew(partition: PartitionImage) -> PartitionImage:
    """The leader is the same broker, but the end of its log may be gone, and other records may come to have the same
    offsets: a new leader epoch distinguishes them."""
    return replace(partition, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)


class _Without:
    """All of these but one."""

    def __init__(self, brokers: Container[int], excluded: int) -> None:
        self._brokers = brokers
        self._excluded = excluded

    def __contains__(self, broker_id: object) -> bool:
        return broker_id != self._excluded and broker_id in self._brokers


def _eligible(partition: PartitionImage, isr: tuple[int, ...], min_isr: int | None) -> tuple[int, ...]:
    """Who is eligible once only these are in sync: all that were until then, while nothing more is committed."""
    if len(isr) >= needed_by(partition, min_isr):
        return ()
    had_all = (*partition.isr, *partition.elr)
    return tuple(replica for replica in partition.replicas if replica in had_all and replica not in isr)


def _with_all_added(partition: PartitionImage, isr: tuple[int, ...]) -> PartitionImage:
    """The partition without `adding` if with these in sync all of those are."""
    if not {*partition.adding} <= {*isr}:
        return partition
    return PartitionImage(
        partition.index,
        partition.replicas,
        partition.isr,
        partition.elr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
    )


def _with_replicas(
    partition: PartitionImage, replicas: tuple[int, ...], adding: tuple[int, ...]
) -> ReassignedPartition | PartitionImage:
    epoch = partition.partition_epoch + 1
    state = (partition.isr, partition.elr, partition.leader, partition.leader_epoch, epoch)
    if adding:
        return ReassignedPartition(partition.index, replicas, *state, adding)
    return PartitionImage(partition.index, replicas, *state)


def _settled(
    partition: PartitionImage,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    leader: int,
    live: Container[int],
    *,
    min_isr: int | None,
) -> PartitionImage | None:
    """Elect a leader if there is none and one can be had: an in-sync replica, or with none of them an eligible one."""
    if leader == NO_LEADER:
        leader = _first(partition, lambda replica: replica in isr and replica in live)
        if leader == NO_LEADER and not isr:
            leader = _first(partition, lambda replica: replica in elr and replica in live)
            if leader != NO_LEADER:
                isr = (leader,)
                # It may be the only one that is still being added.
                partition = _with_all_added(partition, isr)
                is_enough = needed_by(partition, min_isr) <= 1
                elr = () if is_enough else tuple(replica for replica in elr if replica != leader)
    if (isr, elr, leader) == (partition.isr, partition.elr, partition.leader):
        return None
    return _moved(partition, isr, elr, leader)


def _led_by_farthest(partition: PartitionImage, ends: Mapping[int, LogEnd]) -> PartitionImage:
    farthest = max(ends.values())
    equal = [replica for replica, end in ends.items() if end.equals(farthest)]
    # Where epochs are not known, equal ends may belong to different records.
    may_lead = equal or [replica for replica, end in ends.items() if end == farthest][:1]
    isr = tuple(replica for replica in partition.replicas if replica in may_lead)
    newest = max(partition.leader_epoch, *(end.newest_epoch for end in ends.values()))
    led = _moved(_with_all_added(partition, isr), isr, (), isr[0])
    return replace(led, leader_epoch=newest + LEADER_EPOCH_STEP)


def _first(partition: PartitionImage, may_lead: Callable[[int], bool]) -> int:
    return next((replica for replica in partition.replicas if may_lead(replica)), NO_LEADER)


def _moved(partition: PartitionImage, isr: tuple[int, ...], elr: tuple[int, ...], leader: int) -> PartitionImage:
    return replace(
        partition,
        isr=isr,
        elr=elr,
        leader=leader,
        leader_epoch=partition.leader_epoch + (leader != partition.leader),
        partition_epoch=partition.partition_epoch + 1,
    )
