#!/usr/bin/env python3
"""Fuzzes every target in turn and prints a table (fuzz/README.md).

The compiler is the stable one: LLVM's coverage pass needs no nightly, only flags. Seeds are those of fuzz/seeds, and
other people's corpora where RONDO_VECTORS names their folder; what is found on the way stays in the corpus beside the
build. A finding is a file named in the table: the run goes on with the next target and ends with status 1.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
# LLVM's SanitizerCoverage, as libFuzzer reads it: https://llvm.org/docs/LibFuzzer.html
COVERAGE = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table "
    "-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
)
RSS_LIMIT_MB = 2_048


def read_targets():
    """Longest input in bytes, and folders of other people's corpora, by target."""
    lines = [line.split() for line in (FUZZ / "targets.txt").read_text().splitlines() if not line.startswith("#")]
    return {name: (int(max_len), folders) for name, max_len, *folders in lines}


TARGETS = read_targets()


def target_dir():
    return Path(os.environ.get("CARGO_TARGET_DIR", FUZZ / "target")).resolve()


def host():
    version = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return re.search(r"^host: (.+)$", version, re.M).group(1)


def build(names):
    """Builds the binaries; their folder. A target is named so that build scripts are not instrumented."""
    bins = [word for name in names for word in ("--bin", name)]
    command = ["cargo", "build", "--release", "--locked", "--target", host(), *bins]
    env = os.environ | {"RUSTFLAGS": COVERAGE, "CARGO_TARGET_DIR": str(target_dir())}
    subprocess.run(command, cwd=FUZZ, env=env, check=True)
    return target_dir() / host() / "release"


def unpack(name, corpus):
    """Puts the committed seeds of a target into its corpus: files as they are, `.hex` files line by line."""
    corpus.mkdir(parents=True, exist_ok=True)
    for path in sorted((FUZZ / "seeds" / name).glob("*")):
        if path.suffix != ".hex":
            (corpus / path.name).write_bytes(path.read_bytes())
            continue
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                seed, digits = line.split(" ")
                (corpus / f"{path.stem}-{seed}").write_bytes(bytes.fromhex(digits))


def others(folders):
    """Folders of RONDO_VECTORS that are there."""
    vectors = os.environ.get("RONDO_VECTORS")
    found = [Path(vectors) / folder for folder in folders] if vectors else []
    return [str(folder) for folder in found if folder.is_dir()]


def cpu_s():
    """Processor time of the runs so far, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def fuzz(binaries, name, seconds, hang_s):
    """Runs one target; its row of the table."""
    max_len, folders = TARGETS[name]
    work = target_dir() / "fuzz" / name
    corpus, findings = work / "corpus", work / "findings"
    unpack(name, corpus)
    findings.mkdir(exist_ok=True)
    before = set(findings.iterdir())
    command = [
        str(binaries / name),
        str(corpus),
        *others(folders),
        f"-max_total_time={seconds}",
        f"-max_len={max_len}",
        # Scripts say something from a few dozen bytes on: no slow growth.
        "-len_control=0",
        f"-rss_limit_mb={RSS_LIMIT_MB}",
        f"-timeout={hang_s}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
    ]
    begun, used = time.monotonic(), cpu_s()
    log = work / "log"
    with open(log, "wb") as out:
        # What a target writes in passing goes there, and nowhere else.
        status = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
    text = log.read_text(errors="replace")
    seen = re.findall(r"^#(\d+)\s.*?cov: (\d+) ft: (\d+)", text, re.M)
    done = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    executions = int(done.group(1)) if done else int(seen[-1][0]) if seen else 0
    # Slow units are told of, too: an interrupted process makes them, so only what ended the run counts.
    new = sorted(path for path in set(findings.iterdir()) - before if not path.name.startswith("slow-unit"))
    took = time.monotonic() - begun
    return {
        "target": name,
        "minutes": took / 60,
        # On a machine with other work, or one that was stopped, this is what counts.
        "cpu_minutes": (cpu_s() - used) / 60,
        "executions": executions,
        "per_s": executions / max(took, 1),
        "edges": int(seen[-1][1]) if seen else 0,
        "corpus": sum(1 for _ in corpus.iterdir()),
        "findings": new,
        "failed": status != 0,
        "log": log,
    }


def show(row):
    failed = ", ".join(str(path) for path in row["findings"]) or (f"ended early: {row['log']}" if row["failed"] else "none")
    print(
        f"{row['target']:<14}{row['minutes']:>8.1f}{row['cpu_minutes']:>8.1f}{row['executions']:>14,}{row['per_s']:>10,.0f}"
        f"{row['edges']:>8,}{row['corpus']:>8,}  {failed}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="target", help=f"all where none is named: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=600, help="for each target (600)")
    parser.add_argument("--hang-s", type=int, default=25, help="an input that takes longer is a finding (25)")
    args = parser.parse_args()
    names = args.targets or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if "RONDO_VECTORS" not in os.environ:
        print("RONDO_VECTORS is not set: other people's corpora are not read")
    binaries = build(names)
    print(f"{'target':<14}{'minutes':>8}{'cpu':>8}{'executions':>14}{'per s':>10}{'edges':>8}{'corpus':>8}  findings", flush=True)
    rows = []
    for name in names:
        rows.append(fuzz(binaries, name, args.seconds, args.hang_s))
        show(rows[-1])
    return 1 if any(row["failed"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
