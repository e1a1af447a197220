"""Gets the peers that can be had: Apache Kafka from Maven, the others from Debian."""

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.clients.packages import ROOT, install_commands, install_jars
from tools.clients.processes import OutsideError

_JARS: Final = Path(ROOT) / "tools" / "fixtures" / "broker"


def install(commands: Sequence[str], *, jars: bool = False) -> str | None:
    """None when all is there; otherwise what is missing and why."""
    try:
        asyncio.run(_install(commands, jars))
    except (OutsideError, OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None


async def _install(commands: Sequence[str], jars: bool) -> None:
    await install_commands(*commands)
    if jars:
        await install_jars(_JARS)
