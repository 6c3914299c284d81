# shellcheck shell=bash
# Sourced by the scripts beside it: named steps with their times, and tools installed only when missing.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TOOLS=$ROOT/target/test-tools
# What was built here comes first. Not the Python environment's folder: it holds a Redis 6.2 under the name
# redis-server, and whoever asks for that name means the system's.
export PATH=$TOOLS/cargo/bin:$PATH
export CARGO_TERM_PROGRESS_WHEN=never
# A build that starts from nothing and is thrown away: what makes the next one quicker, or a debugger happy, is half of
# what it writes, and disks of such machines are small.
if [[ -n ${CI:-} ]]; then
    export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false
fi

STEP_TIMES=()
NOT_CHECKED=()

say() { printf '%s\n' "$*"; }
die() {
    printf '\nFAILED: %s\n' "$*" >&2
    exit 1
}

# step NAME COMMAND…: a heading, the command, its time; the first failure ends the run.
step() {
    local name=$1 began=$SECONDS status=0
    shift
    printf '\n=== %s\n' "$name"
    # In a subshell with errexit of its own: a function called left of `||` would run on past its errors.
    set +e
    (
        set -e
        "$@"
    )
    status=$?
    set -e
    local took=$((SECONDS - began))
    ((status == 0)) || die "$name (exit $status after ${took}s): $*"
    STEP_TIMES+=("$(printf '%4ds  %s' "$took" "$name")")
    printf -- '--- %s: %ds\n' "$name" "$took"
}

# Something that could not be looked at is said twice: where it happens and at the very end.
not_checked() {
    NOT_CHECKED+=("$*")
    printf 'NOT CHECKED: %s\n' "$*"
}

summary() {
    printf '\n=== summary\n'
    printf '%s\n' "${STEP_TIMES[@]}"
    printf '%4ds  in all\n' "$SECONDS"
    local line
    for line in ${NOT_CHECKED[@]+"${NOT_CHECKED[@]}"}; do printf 'NOT CHECKED: %s\n' "$line"; done
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -n true || die "needs root without a password prompt: $*"
        sudo -n "$@"
    else
        die "needs root, and there is no sudo: $*"
    fi
}

# apt_commands COMMAND=PACKAGE…: installs the packages whose command is missing; starts no service.
apt_commands() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    ((${#missing[@]} == 0)) || apt_packages "${missing[@]}"
}

# apt_packages PACKAGE…: installs them; starts no service.
apt_packages() {
    command -v apt-get >/dev/null || die "missing $*, and there is no apt-get to install them with"
    say "installing $*"
    # RUNLEVEL=1 keeps the packages from starting services of their own.
    local install=(env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends)
    as_root "${install[@]}" "$@" && return 0
    as_root apt-get update -qq
    as_root "${install[@]}" "$@" || die "apt-get could not install $*"
}

# python_venv FOLDER: makes a Python environment with pip.
python_venv() {
    [[ ! -x $1/bin/pip ]] || return 0
    mkdir -p "$(dirname "$1")"
    # Debian ships ensurepip apart from python3.
    python3 -m venv "$1" 2>/dev/null || {
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv
        python3 -m venv "$1"
    }
}

# cargo_tool NAME VERSION [cargo install options]: builds a cargo subcommand when the machine has none.
cargo_tool() {
    local name=$1 version=$2
    shift 2
    command -v "$name" >/dev/null && return 0
    say "building $name $version (minutes, once)"
    cargo install "$name" --version "$version" --locked --root "$TOOLS/cargo" "$@"
}

# Runs the tests.
nextest() { cargo_tool cargo-nextest 0.9.143 --debug --config profile.dev.debug=false; }

rust_components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null || die "rustfmt or clippy is missing, and there is no rustup to add them with"
    rustup component add rustfmt clippy
}
