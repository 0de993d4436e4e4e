#!/usr/bin/env bash
# step.sh NAME COMMAND…: says what is running and how long it took; its output is left alone.
set -euo pipefail

name=$1
shift
printf '== %s\n' "$name"
begun=$SECONDS
if "$@"; then
    printf '== %s: ok, %s s\n' "$name" "$((SECONDS - begun))"
else
    status=$?
    printf '== %s: FAILED (exit %s) after %s s: %s\n' "$name" "$status" "$((SECONDS - begun))" "$*" >&2
    exit "$status"
fi
