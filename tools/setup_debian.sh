#!/usr/bin/env bash
# Makes sure that the commands named as arguments are there: installs what is missing from Debian when run as root,
# and otherwise says what to install. "venv" stands for a Python ($PYTHON) that can create environments.
set -euo pipefail

python=${PYTHON:-python3}

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

is_there() {
    case $1 in
        venv) "$python" -c 'import ensurepip, venv' 2>/dev/null ;;
        *) command -v "$1" >/dev/null ;;
    esac
}

package_of() {
    case $1 in
        cc) echo build-essential ;;
        ip) echo iproute2 ;;
        java) echo default-jdk-headless ;;
        kcat) echo kcat ;;
        losetup | mount) echo mount ;;
        mkfs.ext4) echo e2fsprogs ;;
        mvn) echo maven ;;
        nats-server) echo nats-server ;;
        node) echo nodejs ;;
        npm) echo npm ;;
        promtool) echo prometheus ;;
        rabbitmq-server) echo rabbitmq-server ;;
        redis-server) echo redis-server ;;
        venv) echo python3-venv ;;
        *) fail "tools/setup_debian.sh knows no Debian package for '$1': add it to package_of." ;;
    esac
}

check_python_version() {
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Penstock needs Python 3.11 or newer, and $("$python" --version) is what '$python' runs." \
            "Install a newer one and name it: make PYTHON=python3.13"
}

commands=()
packages=()
for name in "$@"; do
    package=$(package_of "$name")
    if ! is_there "$name"; then
        commands+=("$name")
        packages+=("$package")
    fi
done

if [[ ${#packages[@]} != 0 ]]; then
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        fail "Not found: ${commands[*]}. Install the Debian packages (or what your system calls them) and try again:" \
            "    sudo apt-get install ${packages[*]}"
    fi
    echo "Installing from Debian: ${packages[*]}"
    # Servers are installed for whoever starts one later: Debian would start each of them as a service.
    policy=/usr/sbin/policy-rc.d
    if [[ ! -e $policy ]]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "${packages[@]}" >/dev/null
    # Nor are they to start with the machine.
    for package in "${packages[@]}"; do
        if [[ -e /lib/systemd/system/$package.service ]] && command -v systemctl >/dev/null; then
            systemctl --quiet disable "$package"
        fi
    done
    for name in "${commands[@]}"; do
        is_there "$name" || fail "'$name' is still not found although its Debian package is installed." \
            "Is another version first in PATH?"
    done
fi

case " $* " in
    *" venv "*) check_python_version ;;
esac
