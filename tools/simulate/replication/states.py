"""The states that a run of many schedules must have come through."""

from typing import Final

from penstock.protocol.error_codes import ErrorCode

FROM_ISR: Final = "a leader was elected from the in-sync replicas"
FROM_ELR: Final = "a leader was elected from the eligible replicas"
ISR_EMPTY: Final = "no replica was in sync"
AWAITED: Final = "the sole replica that has everything was awaited"
FROZEN: Final = "the high watermark stayed, since too few replicas were in sync"
DELETED: Final = "a deletion of records was acknowledged"
DELETION_FROZEN: Final = "a deletion of records waited, since too few replicas were in sync"
REFUSED_UP_FRONT: Final = "acks=all was refused, since too few replicas were in sync"
REFUSED_AFTER: Final = "too few replicas were in sync after an append"
ZOMBIE_CUT: Final = "a former leader appended records, and they were cut off"
TRUNCATED: Final = "a log was truncated by epoch"
TWO_ROUNDS: Final = "where logs part was found in two rounds"
START_AT: Final = "a log began anew at the start of the leader's"
EMPTY_EPOCH: Final = "a follower forgot its own elections without records"
FENCED_FETCH: Final = "a fetch of an older leader epoch was refused"
EARLY_FETCH: Final = "a fetch of a newer leader epoch was refused"
LATE_FETCH: Final = "a fetch of an earlier session came late"
LATE_ANSWER: Final = "an answer came to a fetch that was given up"
UNSETTLED: Final = "a read was refused, since the leader did not know yet what is committed"
JOINED: Final = "a follower came to be in sync"
LAGGED: Final = "a follower was taken out, since it lagged"
UNKNOWN_ACCEPTED: Final = "the outcome of a proposal was unknown, and it was accepted"
UNKNOWN_VOIDED: Final = "the outcome of a proposal was unknown, then it was refused and made void"
LATE_PROPOSAL: Final = "a proposal of an older state was refused"
STALE_MEMBER: Final = "a proposal that named an earlier registration was refused"
STALE_LEADER: Final = "a proposal of an earlier registration of the leader was refused"
PROPOSED_BY_ZOMBIE: Final = "a proposal of a former leader was refused"
FENCED_CONTROLLER: Final = "a former controller was fenced"
ZOMBIE_REFUSED: Final = "a former controller refused a proposal"
HALF_DONE: Final = "a controller left a decision half done"
RESTART_IN_SESSION: Final = "a broker restarted within its session"
CLEAN_RESTART: Final = "a broker restarted after a clean stop"
LED_ANEW: Final = "the only leader restarted, and led in a new epoch"
SESSION_LOST: Final = "a session was lost, and the broker registered again"
ALL_DOWN: Final = "all brokers were down at once"
DISK_LOST: Final = "a disk was lost, and filled again"
MIN_LOWERED: Final = "fewer in-sync replicas came to be needed while others were eligible"
MIN_RAISED: Final = "more in-sync replicas came to be needed"
RECREATED: Final = "a topic was deleted and created again"
PREFERRED: Final = "the preferred replica came to lead"
TAIL_LOST: Final = "a crash took records that were not flushed"
POWER_LOST: Final = "a machine lost its power, and records that counted though they were not flushed"
NO_LONGER_ELIGIBLE: Final = "a broker whose machine had lost its power was not eligible any more"

STATES: Final = tuple(value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str))

OF_ERRORS: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: FENCED_FETCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH: EARLY_FETCH,
}
"""What the error of a fetch shows."""

OF_PROPOSALS: Final = {
    ErrorCode.INVALID_UPDATE_VERSION: LATE_PROPOSAL,
    ErrorCode.INELIGIBLE_REPLICA: STALE_MEMBER,
    ErrorCode.STALE_BROKER_EPOCH: STALE_LEADER,
    ErrorCode.FENCED_LEADER_EPOCH: PROPOSED_BY_ZOMBIE,
}
"""What the answer to a proposal shows."""
