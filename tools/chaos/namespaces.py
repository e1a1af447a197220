"""Who may not make network namespaces on a machine is root of namespaces of their own, where the kernel lets users have
them: enough for every fault but the one that takes disks."""

import os
import subprocess
from typing import Final

from tools.chaos.network import NetworkError, ip

# There `ip` keeps its namespaces in /run/netns, which is not the machine's.
OWN: Final = ("unshare", "--user", "--map-root-user", "--net", "--mount")
_WITH_RUN: Final = ("sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh")


def prefix() -> list[str]:
    """What stands before a command that needs network namespaces: nothing for root of a machine that allows them.
    NetworkError if there is no way."""
    trial = f"penstock-{os.getpid()}-trial"
    if os.geteuid() == 0:
        try:
            ip("netns", "add", trial)
            ip("netns", "delete", trial)
        except NetworkError as error:
            refusal = str(error)
        else:
            return []
    else:
        refusal = "only root may make network namespaces"
    own = [*OWN, *_WITH_RUN]
    try:
        done = subprocess.run([*own, "ip", "netns", "add", trial], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NetworkError(f"{refusal}, and {error.filename} is not installed") from None
    if done.returncode:
        raise NetworkError(f"{refusal}, and the kernel lets users have none of their own: {done.stderr.strip()}")
    return own
