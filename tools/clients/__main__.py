"""`python -m tools.clients` fetches everything that the clients need, as far as it is not there."""

import asyncio
import sys

from tools.clients.clients import CLIENTS
from tools.clients.processes import OutsideError


async def install() -> None:
    for client in CLIENTS:
        await client.install()


if __name__ == "__main__":
    try:
        asyncio.run(install())
    except OutsideError as error:
        sys.exit(str(error))
