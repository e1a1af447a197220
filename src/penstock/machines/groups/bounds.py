"""Bounds what a group takes in the log and in the memory of its coordinator: lengths of names, bytes of members."""

from collections.abc import Iterable
from typing import Final

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.schemas.groups import JoinGroupRequest

NAME_BYTES: Final = 1_024
"""The longest group id, instance id, protocol type and protocol name, in UTF-8. The log could keep 32,767 bytes."""
STRING_BYTES: Final = 0x7FFF
"""The longest string that a record of the log has room for."""
CLIENT_ID_CHARACTERS: Final = 249
"""How much of a client's id becomes a part of its member id."""
MAX_PROTOCOLS: Final = 16
"""The most protocols of one member. Clients name one for each assignor that they are configured with."""
MAX_INVITED: Final = 2_000
"""The most members of all groups of a shard that were given an id and have not come back with it. Above this the oldest
one loses its id, and joins without one again if it comes."""
MAX_LEAVING: Final = 10_000
"""The most members that one LeaveGroup may name; no group has as many."""

# The share of a group's record that the metadata of its members may take; the rest is for the plan.
_SAID, _OF = 3, 4
# One member may take at most 1/2 of it with all its protocols, of which the log will keep only one.
_MEMBER_SHARE: Final = 2


def is_name(text: str) -> bool:
    """Whether the text is short enough for a name."""
    return fits(text, NAME_BYTES)


def fits(text: str, most: int) -> bool:
    """Whether the text takes at most this many bytes."""
    length = len(text)
    # A character takes four bytes at the most, so that few names have to be encoded to be measured.
    return length * 4 <= most or (length <= most and len(text.encode("utf-8", "surrogatepass")) <= most)


def join_error(request: JoinGroupRequest, max_record_bytes: int) -> ErrorCode | None:
    """Why what a member says of itself could not be kept, whichever group it is for."""
    protocols = request.protocols
    if len(protocols) > MAX_PROTOCOLS:
        return ErrorCode.INVALID_REQUEST
    names = [request.group_instance_id or "", request.protocol_type, *(protocol.name for protocol in protocols)]
    said = sum(len(protocol.metadata) for protocol in protocols)
    if not all(map(is_name, names)) or said > max_record_bytes // _MEMBER_SHARE:
        return ErrorCode.INVALID_REQUEST
    return None


def may_say(group_bytes: int, max_record_bytes: int) -> bool:
    """Whether members that say so much leave room for a plan in the group's record."""
    return group_bytes * _OF <= max_record_bytes * _SAID


def plan_fits(group_bytes: int, parts: Iterable[bytes], max_record_bytes: int) -> bool:
    """Whether a group's record has room for the plan beside what members say."""
    return group_bytes + sum(map(len, parts)) <= max_record_bytes
