#!/bin/sh
# Installs what the lab and the tests need, and sparkop itself into ./.venv. Safe to repeat. Needs root for apt.
#   usage: install.sh [extra]      extra: a pip extra of sparkop, for example dev
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
venv=${SPARKOP_VENV:-$root/.venv}
extra=${1:-}

say() { printf '%s\n' "$*" >&2; }

there() { # whether a program or library is on this machine
    case $1 in
    *.so.*) ls /lib/"$1" /usr/lib/"$1" /usr/lib/*-linux-gnu/"$1" 2>/dev/null | grep -q . ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing() { # package names whose program or library is not there
    while read -r package shown_by; do
        case $package in '' | '#'*) continue ;; esac
        there "$shown_by" || printf '%s ' "$package"
    done
    # Debian keeps the module that makes virtual environments apart.
    "${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null || printf 'python3-venv '
}

install_packages() {
    lists=$root/sparkop/lab/packages.txt
    [ -z "$extra" ] || lists="$lists $root/tests/packages.txt"
    # shellcheck disable=SC2086 # a list of files
    wanted=$({ cat $lists; echo curl curl; } | missing)
    [ -n "$wanted" ] || return 0
    [ "$(id -u)" = 0 ] || { say "install.sh: run as root to install: $wanted"; exit 1; }
    say "Installing system packages: $wanted"
    # The lab starts its own sshd and dockerd inside namespaces: none may start on this machine.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        trap 'rm -f $policy' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of names
    apt-get install -y -qq --no-install-recommends $wanted >/dev/null
    if [ -d /run/systemd/system ]; then
        for unit in ssh.service docker.service docker.socket containerd.service docker-registry.service; do
            systemctl is-active --quiet $unit || systemctl disable --quiet $unit 2>/dev/null || true
        done
    fi
}

install_sparkop() {
    python=${PYTHON:-python3}
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        { say "install.sh: Python 3.11 or newer is needed; PYTHON=... names one"; exit 1; }
    [ -x "$venv/bin/sparkop" ] || say "Installing sparkop into $venv (half a minute)"
    [ -x "$venv/bin/uv" ] || { "$python" -m venv "$venv" && "$venv/bin/python" -m pip install -q uv; }
    # torch for processors is not where the other packages are: in a folder of wheels, or in torch's own index.
    places=
    for place in ${PIP_FIND_LINKS:-}; do places="$places --find-links $place"; done
    [ -n "$places" ] || places='--torch-backend cpu'
    # shellcheck disable=SC2086 # a list of options
    "$venv/bin/uv" pip install -q --compile-bytecode --python "$venv/bin/python" $places \
        -e "$root${extra:+[$extra]}"
    # Where PYTHONDONTWRITEBYTECODE is set, every start would compile sparkop again.
    env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -m compileall -q "$root/sparkop" || true
}

install_packages
install_sparkop
