"""What the clients of a simulated group may never see, each rule by its name."""

from dataclasses import dataclass, field
from typing import Final

from penstock.machines.groups.records import GroupRecord, GroupStored, OffsetCommitted

PARTITIONS: Final = frozenset(range(6))


@dataclass(slots=True)
class Watch:
    """What clients have been told and what the log has committed; every method names what must always hold."""

    plans: dict[tuple[int, str], bytes] = field(default_factory=dict)
    by_identity: dict[tuple[int, str], bytes] = field(default_factory=dict)
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    stored_generation: int = 0
    told_generation: int = 0
    # Of each partition: the commits in the log, as (generation, number), and how many of them were acknowledged.
    commits: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: {index: [] for index in PARTITIONS})
    places: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=lambda: dict.fromkeys(PARTITIONS, 0))
    asked: set[str] = field(default_factory=set)

    def committed(self, record: GroupRecord) -> None:
        match record:
            case GroupStored():
                self.generations_never_go_back(record)
            case OffsetCommitted():
                self.a_committed_offset_never_goes_back_by_itself(record)

    def generations_never_go_back(self, record: GroupStored) -> None:
        assert record.generation >= self.stored_generation, f"generation {record.generation} after later ones"
        self.stored_generation = record.generation
        for member in record.members:
            identity = member.instance_id or member.member_id
            known = self.by_identity.setdefault((record.generation, identity), member.assignment)
            assert known == member.assignment, f"generation {record.generation} has two plans for {identity}"
            self.plans[record.generation, member.member_id] = member.assignment

    def a_committed_offset_never_goes_back_by_itself(self, record: OffsetCommitted) -> None:
        generation = int(record.metadata.split("/")[0])
        commits = self.commits[record.partition]
        assert record.metadata in self.asked, "the log holds a commit that nobody made"
        assert record.metadata not in self.places, "one commit was written twice"
        assert not commits or commits[-1][0] <= generation, "an old generation committed over a later one"
        commits.append((generation, record.metadata))
        self.places[record.metadata] = len(commits)

    def one_owner_per_partition_per_generation(self, generation: int, identity: str, partitions: bytes) -> None:
        for index in partitions:
            owner = self.owners.setdefault((generation, index), identity)
            assert owner == identity, f"{owner} and {identity} both own {index} in generation {generation}"

    def no_reply_reveals_an_uncommitted_assignment(self, generation: int, member_id: str, plan: bytes) -> None:
        assert self.plans.get((generation, member_id)) == plan, "a plan was told that the log has not committed"

    def no_reply_reveals_an_uncommitted_offset(self, index: int, offset: int, metadata: str, since: int) -> int:
        """Returns the generation that committed it."""
        if offset == -1:
            assert not since, "an acknowledged commit is gone"
            return -1
        place = self.places.get(metadata)
        assert place is not None, "an offset was told that the log has not committed"
        assert place >= since, "an acknowledged commit is gone"
        return self.commits[index][place - 1][0]
