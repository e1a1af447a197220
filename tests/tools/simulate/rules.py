"""The rules of replication, each of which can be switched off: the simulation must notice that.

`.venv/bin/python -m tests.tools.simulate.rules` looks for schedules in which it does, and writes their seeds down: to
be done when a change of the code has made other schedules of them.
"""

import json
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace as changed
from rich.console import Console

from penstock.machines import elections, partition_leader
from penstock.machines.cluster_records import NO_LEADER, BrokerRegistered, PartitionImage
from penstock.machines.controller import Controller
from penstock.machines.decisions import ControllerDecision
from penstock.machines.parting import parting
from penstock.machines.partition_follower import FetchFrom, PartitionFollower, Step
from penstock.machines.partition_leader import Answered, PartitionLeader, Proposal
from penstock.machines.registration import Registration
from tools.simulate.replication import simulate
from tools.simulate.replication.following import Following
from tools.simulate.replication.metadata import Metadata
from tools.simulate.replication.node import Node
from tools.simulate.replication.replica import Replica

Patch = pytest.MonkeyPatch

SEEDS: Final = Path("tests/fixtures/simulation/rules.json")
MOST_SEEDS: Final = 200_000
_MERE_ERROR: Final = re.compile(r"(?!AssertionError)\w+Error: ")
PARTING: Final = "tools.simulate.replication.replica.parting"


def any_replica_that_is_alive_leads(patch: Patch) -> None:
    settled = elections._settled

    def settle(partition: PartitionImage, isr: Any, elr: Any, leader: int, live: Any, *, min_isr: int | None) -> Any:
        after = settled(partition, isr, elr, leader, live, min_isr=min_isr)
        state = after or partition
        if state.leader == NO_LEADER and (unclean := elections.elected_unclean(state, live)) is not None:
            return changed(unclean, partition_epoch=partition.partition_epoch + 1)
        return after

    patch.setattr(elections, "_settled", settle)


def a_restart_changes_nothing(patch: Patch) -> None:
    """A broker that comes back is taken for the one that it was."""
    register = Controller.register_broker

    def registered(controller: Controller, registration: Registration) -> ControllerDecision[None]:
        decision = register(controller, registration)
        known = controller._image.brokers.get(registration.broker_id)
        if known is None or not known.is_alive:
            return decision
        return ControllerDecision(tuple(one for one in decision.records if isinstance(one, BrokerRegistered)), None)

    patch.setattr(Controller, "register_broker", registered)


def brokers_serve_before_they_are_registered(patch: Patch) -> None:
    start = Node.start

    def started(node: Node) -> None:
        start(node)
        node.serves = True

    patch.setattr(Node, "start", started)


def a_lost_disk_stays_eligible(patch: Patch) -> None:
    left = elections.broker_left

    def leave(*arguments: Any, has_lost_its_log: bool = False) -> PartitionImage | None:
        return left(*arguments)

    patch.setattr(elections, "broker_left", leave)


def what_was_not_flushed_counts_after_a_loss_of_power(patch: Patch) -> None:
    patch.setattr(Controller, "_not_flushed", lambda controller, registration: set())


def none_is_eligible(patch: Patch) -> None:
    patch.setattr(elections, "_eligible", lambda *arguments: ())


def all_that_ever_were_in_sync_are_eligible(patch: Patch) -> None:
    def eligible(partition: PartitionImage, isr: tuple[int, ...], min_isr: int | None) -> tuple[int, ...]:
        had_all = (*partition.isr, *partition.elr)
        return tuple(broker for broker in partition.replicas if broker in had_all and broker not in isr)

    patch.setattr(elections, "_eligible", eligible)


def logs_are_cut_to_the_high_watermark(patch: Patch) -> None:
    """A follower forgets what it does not know to be committed, and the leader does not ask for epochs."""
    begin = Following.begin

    def begun(self: Following) -> None:
        self.replica.log.truncate(self.replica.high_watermark)
        begin(self)

    def parted(*arguments: Any, last_fetched_epoch: int, **named: Any) -> Any:
        return parting(*arguments, last_fetched_epoch=-1, **named)

    patch.setattr(Following, "begin", begun)
    patch.setattr(PARTING, parted)


def divergence_is_progress(patch: Patch) -> None:
    def parted(leader: PartitionLeader, log: Any, broker_id: int, *, offset: int, **named: Any) -> Any:
        found = parting(leader, log, broker_id, offset=offset, **named)
        follower = leader.followers.get(broker_id)
        if isinstance(found, tuple) and follower is not None and follower.broker_epoch >= 0:
            follower.end_offset = max(follower.end_offset, offset)
        return found

    patch.setattr(PARTING, parted)


def only_the_committed_isr_counts(patch: Patch) -> None:
    propose = PartitionLeader._propose

    def proposed(leader: PartitionLeader, isr: Collection[int], maximal: frozenset[int] | None = None) -> None:
        propose(leader, isr, maximal)
        leader.maximal_isr = leader.isr

    patch.setattr(PartitionLeader, "_propose", proposed)


def one_in_sync_replica_is_enough(patch: Patch) -> None:
    patch.setattr(partition_leader, "needed", lambda min_isr, replicas: 1)


def proposals_of_older_states_are_taken(patch: Patch) -> None:
    alter: Any = Controller.alter_partition

    def altered(*arguments: Any) -> Any:
        controller, *others, topic_id, index, proposal = arguments
        topic = controller._image.topics_by_id.get(topic_id)
        if topic is not None:
            proposal = replace(proposal, partition_epoch=topic.partitions[index].partition_epoch)
        return alter(controller, *others, topic_id, index, proposal)

    patch.setattr(Controller, "alter_partition", altered)


def a_former_controller_still_writes(patch: Patch) -> None:
    patch.setattr(Metadata, "fence", lambda metadata, decision: metadata.append(decision.records))


def followers_join_without_the_start_of_the_epoch(patch: Patch) -> None:
    joining = PartitionLeader.joining

    def joined(leader: PartitionLeader, now_ms: int, leader_end: int) -> list[int]:
        start, leader.epoch_start_offset = leader.epoch_start_offset, 0
        found = joining(leader, now_ms, leader_end)
        leader.epoch_start_offset = start
        return found

    patch.setattr(PartitionLeader, "joining", joined)


def followers_join_with_what_they_had_in_former_epochs(patch: Patch) -> None:
    """A follower that has not fetched in this epoch counts as if it had everything."""
    joining = PartitionLeader.joining

    def joined(leader: PartitionLeader, now_ms: int, leader_end: int) -> list[int]:
        for follower in leader.followers.values():
            if follower.end_offset < 0 and follower.broker_epoch >= 0:
                follower.end_offset = leader_end
        return joining(leader, now_ms, leader_end)

    patch.setattr(PartitionLeader, "joining", joined)


def an_unknown_outcome_counts_as_a_refusal(patch: Patch) -> None:
    answered = PartitionLeader.answered

    def answer(leader: PartitionLeader, proposal: Proposal, told: Answered, **named: Any) -> None:
        answered(leader, proposal, Answered.REFUSED if told is Answered.UNKNOWN else told, now_ms=named["now_ms"])

    patch.setattr(PartitionLeader, "answered", answer)


def answers_to_former_fetches_count(patch: Patch) -> None:
    answered = PartitionFollower.answered

    def answer(follower: PartitionFollower, fetch: FetchFrom, **named: Any) -> Step:
        follower.outstanding = fetch
        return answered(follower, fetch, **named)

    patch.setattr(PartitionFollower, "answered", answer)


def a_former_registration_may_be_in_sync(patch: Patch) -> None:
    alter: Any = Controller.alter_partition

    def altered(*arguments: Any) -> Any:
        controller, *others, proposal = arguments
        brokers = controller._image.brokers
        isr = tuple((member, brokers[member].broker_epoch) for member, _ in proposal.isr)
        return alter(controller, *others, replace(proposal, isr=isr))

    patch.setattr(Controller, "alter_partition", altered)


def a_late_fetch_says_what_the_follower_has(patch: Patch) -> None:
    fetched = PartitionLeader.follower_fetched

    def fetch(leader: PartitionLeader, broker_id: int, *, broker_epoch: int, session: int, **named: Any) -> bool:
        known = leader.followers.get(broker_id)
        if known is not None and (broker_epoch, session) <= (known.broker_epoch, known.session):
            known.end_offset = -1
            broker_epoch, session = known.broker_epoch, known.session
        return fetched(leader, broker_id, broker_epoch=broker_epoch, session=session, **named)

    patch.setattr(PartitionLeader, "follower_fetched", fetch)


def fetches_of_any_leader_epoch_are_served(patch: Patch) -> None:
    def parted(leader: PartitionLeader, *arguments: Any, leader_epoch: int, **named: Any) -> Any:
        return parting(leader, *arguments, leader_epoch=leader.leader_epoch, **named)

    patch.setattr(PARTING, parted)


def what_is_written_counts_as_flushed(patch: Patch) -> None:
    patch.setattr(Replica, "durable_end", property(lambda self: self.log.end_offset))


def a_follower_takes_over_any_high_watermark(patch: Patch) -> None:
    def committed(follower: PartitionFollower, high_watermark: int, log_end: int) -> int:
        follower.high_watermark = max(follower.high_watermark, high_watermark)
        return follower.high_watermark

    patch.setattr(PartitionFollower, "committed", committed)


def reads_are_served_before_the_leader_knows_what_is_committed(patch: Patch) -> None:
    patch.setattr(PartitionLeader, "is_settled", True)


def a_deletion_waits_for_the_committed_isr(patch: Patch) -> None:
    def low_watermark(leader: PartitionLeader) -> int:
        return min([leader.log_start, *(leader.followers[one].log_start for one in leader.isr - {leader.broker_id})])

    patch.setattr(PartitionLeader, "low_watermark", property(low_watermark))


def a_deletion_is_acknowledged_by_any_in_sync_replicas(patch: Patch) -> None:
    patch.setattr(PartitionLeader, "has_deleted", lambda leader, offset: leader.low_watermark >= offset)


def followers_join_with_what_is_deleted(patch: Patch) -> None:
    joining = PartitionLeader.joining

    def joined(leader: PartitionLeader, now_ms: int, leader_end: int) -> list[int]:
        start, leader.log_start = leader.log_start, 0
        found = joining(leader, now_ms, leader_end)
        leader.log_start = start
        return found

    patch.setattr(PartitionLeader, "joining", joined)


@dataclass(frozen=True, slots=True)
class Rule:
    """`number` is that of the list in docs/decisions/0022-replication.md; `name` is what holds while it is on."""

    number: int
    name: str
    switch_off: Callable[[Patch], None]


RULES: Final = (
    Rule(1, "only in-sync or eligible replicas are elected", any_replica_that_is_alive_leads),
    Rule(2, "a restart ends what the broker led and was in sync with", a_restart_changes_nothing),
    Rule(2, "a broker serves once it is registered", brokers_serve_before_they_are_registered),
    Rule(2, "a broker with an empty disk is not eligible", a_lost_disk_stays_eligible),
    Rule(
        2,
        "a broker whose machine was started again is not eligible without flushes",
        what_was_not_flushed_counts_after_a_loss_of_power,
    ),
    Rule(3, "who leaves the in-sync replicas when they are few is eligible", none_is_eligible),
    Rule(3, "none is eligible while enough are in sync", all_that_ever_were_in_sync_are_eligible),
    Rule(4, "logs are cut by leader epochs", logs_are_cut_to_the_high_watermark),
    Rule(4, "a fetch of a log that has parted is no progress", divergence_is_progress),
    Rule(5, "the high watermark waits for the maximal in-sync replicas", only_the_committed_isr_counts),
    Rule(6, "nothing is committed while too few are in sync", one_in_sync_replica_is_enough),
    Rule(7, "a proposal is for one state of the partition", proposals_of_older_states_are_taken),
    Rule(7, "a former controller is fenced", a_former_controller_still_writes),
    Rule(8, "who joins has what the leader had when it was elected", followers_join_without_the_start_of_the_epoch),
    Rule(8, "who joins has fetched in this leader epoch", followers_join_with_what_they_had_in_former_epochs),
    Rule(9, "an unknown outcome keeps the maximal in-sync replicas", an_unknown_outcome_counts_as_a_refusal),
    Rule(9, "only the answer to the outstanding fetch counts", answers_to_former_fetches_count),
    Rule(10, "a proposal names registrations", a_former_registration_may_be_in_sync),
    Rule(11, "a fetch of an earlier session says nothing", a_late_fetch_says_what_the_follower_has),
    Rule(12, "a fetch of another leader epoch is refused", fetches_of_any_leader_epoch_are_served),
    Rule(13, "only what is flushed counts", what_is_written_counts_as_flushed),
    Rule(
        14, "reads wait for the start of the leader epoch", reads_are_served_before_the_leader_knows_what_is_committed
    ),
    Rule(14, "the high watermark stays within the log", a_follower_takes_over_any_high_watermark),
    Rule(15, "a deletion waits for the maximal in-sync replicas", a_deletion_waits_for_the_committed_isr),
    Rule(15, "no deletion is done while too few are in sync", a_deletion_is_acknowledged_by_any_in_sync_replicas),
    Rule(15, "who joins has deleted what the leader has", followers_join_with_what_is_deleted),
)


def seeds() -> dict[str, int]:
    """By the names of the rules, schedules in which it is noticed that the rule is off."""
    stored: dict[str, int] = json.loads(SEEDS.read_text())
    return stored


def problems(rule: Rule, seed: int) -> list[str]:
    """What the simulation notices in a schedule with the rule off. An error that merely stops it is no finding; that an
    assertion of the machines does not hold is one."""
    with Patch.context() as patch:
        rule.switch_off(patch)
        return [problem for problem in simulate(seed).problems if not _MERE_ERROR.match(problem)]


def find_seed(rule: Rule, known: int | None) -> int | None:
    first = [] if known is None else [known]
    return next(
        (seed for seed in [*first, *range(1, MOST_SEEDS)] if problems(rule, seed) and not simulate(seed).problems), None
    )


def main() -> int:
    console, found = Console(highlight=False), seeds() if SEEDS.exists() else {}
    for rule in RULES:
        seed = find_seed(rule, found.pop(rule.name, None))
        console.print(f"rule {rule.number}, {rule.name}: {seed}")
        if seed is not None:
            found[rule.name] = seed
            SEEDS.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if len(found) == len(RULES) else 1


if __name__ == "__main__":
    sys.exit(main())
