"""What the table's walk does to brokers: one is stopped for good, or is silent for a while."""

from typing import Protocol

from tools.clients.processes import run

SECONDS = 120


class Control(Protocol):
    async def stop(self, node: int) -> None:
        """Stop a broker in order. Returns when it is gone."""

    async def silence(self, node: int) -> None:
        """Let a broker fetch nothing from the others, for less than its session lasts."""

    async def wake(self, node: int) -> None: ...


class Signals:
    """Brokers that are processes: a command of the shell sends a signal to one, and ends when it has worked."""

    def __init__(self, command: str) -> None:
        self._command = command

    async def stop(self, node: int) -> None:
        await self._send(node, "TERM")

    async def silence(self, node: int) -> None:
        await self._send(node, "STOP")

    async def wake(self, node: int) -> None:
        await self._send(node, "CONT")

    async def _send(self, node: int, signal: str) -> None:
        await run(["sh", "-c", self._command.replace("{node}", str(node)).replace("{signal}", signal)], seconds=SECONDS)
