"""Decides which names a topic may have, and which of them get in each other's way."""

import re

from penstock.machines.groups.sharding import OFFSETS_TOPIC

INTERNAL = frozenset({OFFSETS_TOPIC})
"""Topics that the cluster makes and writes itself. Clients may read them."""

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem(name: str) -> str | None:
    """What is wrong with a name, in words for the user; None if it may be used."""
    if not name:
        return "a topic needs a name, and this one is empty"
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}: that is a folder everywhere"
    if len(name) > MAX_LENGTH:
        return f"the topic name has {len(name)} characters; {MAX_LENGTH} is the most"
    if not _LEGAL.fullmatch(name):
        stranger = next(character for character in name if not _LEGAL.fullmatch(character))
        return f"the topic name {name!r} contains {stranger!r}; letters, digits, '.', '_' and '-' of ASCII are allowed"
    return None


def collision_key(name: str) -> str:
    """Equal for names that may not exist beside each other: metrics write '.' as '_'."""
    return name.replace(".", "_")
