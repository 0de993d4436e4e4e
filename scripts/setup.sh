#!/usr/bin/env bash
# setup.sh TOOL…: makes sure that each TOOL is here, or says in one sentence what to do. Prints nothing when it is.
set -euo pipefail

rust_wanted=1.95
node_wanted=20

die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# True when version $1 is at least $2, numbers compared as numbers.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# Installs Debian packages quietly, as root or by sudo.
apt_install() {
    command -v apt-get >/dev/null || die "no apt-get here; install $* by hand"
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "installing $* needs root or sudo"
        as_root=(sudo)
    fi
    printf 'setup: installing %s\n' "$*"
    "${as_root[@]}" apt-get update -qq </dev/null >/dev/null
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" \
        </dev/null >/dev/null
}

need_rust() {
    command -v cargo >/dev/null || die "no cargo here; install Rust $rust_wanted or newer (https://rustup.rs)"
    local have
    have=$(rustc --version | awk '{ print $2 }')
    at_least "$have" "$rust_wanted" || die "Rust $have is too old; $rust_wanted or newer is wanted"
    # aws-lc and ring compile C.
    command -v cc >/dev/null || apt_install gcc libc6-dev
}

need_cxx() {
    # libFuzzer is C++.
    command -v c++ >/dev/null || apt_install g++
}

need_node() {
    command -v node >/dev/null && command -v npm >/dev/null || die "no Node here; install Node $node_wanted or newer"
    local have
    have=$(node --version)
    at_least "${have#v}" "$node_wanted" || die "Node $have is too old; $node_wanted or newer is wanted"
}

need_python() {
    command -v python3 >/dev/null || apt_install python3
    # Debian ships venv apart from python3.
    python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
}

need_chromium() {
    [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null || apt_install chromium
}

need_ffmpeg() {
    [ -n "${FFMPEG:-}" ] || command -v ffmpeg >/dev/null || apt_install ffmpeg
}

need_janus() {
    command -v janus >/dev/null || apt_install janus
}

[ $# -gt 0 ] || die "which tool? rust, cxx, node, python, chromium, ffmpeg, janus"
for tool in "$@"; do
    case $tool in
        rust | cxx | node | python | chromium | ffmpeg | janus) "need_$tool" ;;
        *) die "no such tool: $tool" ;;
    esac
done
