#!/usr/bin/env bash
# web_dist.sh build: builds the pages into web/dist.
# web_dist.sh check: builds them too, and fails if the result is not what lay there before: the binary embeds
#                    web/dist as committed, so a stale one would be shipped.
set -euo pipefail
cd "$(dirname "$0")/../web"

build() {
    npm run --silent build
}

check() {
    [ -f dist/index.html ] || { echo "web/dist is missing: run \`make web\` and commit it" >&2; exit 1; }
    before=$(mktemp -d)
    trap 'rm -rf "$before"' EXIT
    cp -a dist/. "$before"
    build
    if ! diff --recursive --brief "$before" dist; then
        echo "web/dist was not the build of web/src. It is now: look at it and commit it." >&2
        exit 1
    fi
    # In a clone the committed files count: a file that was built but never added would be missing for others.
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1 && [ -n "$(git ls-files --others -- dist)" ]; then
        echo "web/dist holds files that are not committed:" >&2
        git ls-files --others -- dist >&2
        exit 1
    fi
}

case ${1:-} in
    build | check) "$1" ;;
    *) echo "web_dist.sh build|check" >&2; exit 2 ;;
esac
