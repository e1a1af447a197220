"""The producer of Java sends like those of Python do, in a program that is started once for all of its sends."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tools.clients.clients import JAVA
from tools.clients.packages import ROOT, class_path
from tools.clients.processes import Conversation
from tools.error_table.cells import Target
from tools.error_table.senders import RETRIES, SECONDS, read_mode

PROGRAM = Path(__file__).parent / "Attempts.java"
# Compiling further than the first stage takes longer than the sends do.
COMMAND = (
    *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-cp", class_path("java"), str(PROGRAM)),
)
START_SECONDS = 60


class JavaSender:
    """A sender, as it is called in senders.py."""

    def __init__(self, conversation: Conversation) -> None:
        self.version: str = conversation.greeting["version"]
        self._conversation = conversation

    async def __call__(self, bootstrap: str, mode: str, targets: Sequence[Target]) -> list[str]:
        acks, idempotent = read_mode(mode)
        await self._conversation.say(
            {
                "bootstrap": bootstrap,
                "acks": acks,
                "idempotent": idempotent,
                "retries": RETRIES,
                "timeout_ms": SECONDS * 1000,
                "targets": targets,
            }
        )
        outcomes: list[str] = (await self._conversation.hear())["outcomes"]
        return outcomes


@asynccontextmanager
async def java_sender() -> AsyncIterator[JavaSender]:
    await JAVA.install()
    async with Conversation.open(COMMAND, seconds=START_SECONDS, folder=ROOT, environment={}) as conversation:
        yield JavaSender(conversation)
