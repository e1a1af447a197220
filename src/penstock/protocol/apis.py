"""Finds an API by its key: its name, its messages, and which header goes with which version."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module

from penstock.protocol.schema import Message
from penstock.protocol.schemas import INDEX

PRODUCE = 0
API_VERSIONS = 18


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    name: str
    request: type[Message]
    response: type[Message]

    def request_header_version(self, version: int) -> int:
        return 2 if version in self.request.schema.flexible else 1

    def response_header_version(self, version: int) -> int:
        # A client that does not know yet what the broker speaks must be able to read the answer (KIP-511).
        return 1 if version in self.request.schema.flexible and self.key != API_VERSIONS else 0


@cache
def api(key: int) -> Api:
    """The API with this key; KeyError if there is none. Its tables are imported now."""
    family, name = INDEX[key]
    module = import_module(f"penstock.protocol.schemas.{family}")
    return Api(key, name, getattr(module, f"{name}Request"), getattr(module, f"{name}Response"))


def all_apis() -> list[Api]:
    return [api(key) for key in INDEX]
