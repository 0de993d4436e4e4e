#!/usr/bin/env python3
"""`make accept`: what a release must show, each line by a real run against the real server; a table at the end.

    accept.py [CHECK…]      runs the named checks only (accept.py --list)

A check that cannot run here (no load tool, no Janus) is shown as skipped, with the reason; a failed one makes the exit
code 1. Logs are in the target folder under accept/. Standard library only.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
if not TARGET.is_absolute():
    TARGET = ROOT / TARGET
LOGS = TARGET / "accept"
SCREENS = TARGET / "screens"

# What two people may be apart in sound and picture before it shows (ITU-R BT.1359 puts the first notice at 45 ms).
SKEW_MS_MAX = 50


class Failed(Exception):
    """The check ran and did not hold."""


class Skipped(Exception):
    """The check cannot run here."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(**more):
    """The caller's environment without its RONDO_ settings, but for the folder of test vectors."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RONDO_") or k == "RONDO_VECTORS"}
    return kept | more


def run(name, command, limit_s, **env):
    """Runs to the end; its output goes to a log. Gives the output."""
    log = LOGS / f"{name}.log"
    with open(log, "ab") as out:
        out.write(f"$ {' '.join(map(str, command))}\n".encode())
        out.flush()
        begun = out.tell()
        try:
            done = subprocess.run(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=limit_s,
                env=environment(**env),
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"not done within {limit_s} s, see {log}") from None
    output = log.read_bytes()[begun:].decode(errors="replace")
    if done.returncode != 0:
        raise Failed(f"exit {done.returncode}: {last_line(output)} (see {log})")
    return output


def last_line(output):
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


@contextlib.contextmanager
def server(name, command, cwd=LOGS):
    """A server on free ports of this machine, ready; its address and how long the start took. Ended afterwards.

    It starts in a folder of its own: a rondo.toml beside the sources is the developer's.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = environment(RONDO_HTTP__BIND=f"127.0.0.1:{port}", RONDO_MEDIA__FIRST_PORT="0")
    begun = time.monotonic()
    with open(LOGS / f"{name}-server.log", "wb") as out:
        # A group of its own: `make run` is a parent of the server, and both are to hear the signal.
        process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env,
            start_new_session=True,
        )
    try:
        wait_ready(url, process, out.name)
        yield url, time.monotonic() - begun
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_ready(url, process, log, limit_s=600):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Failed(f"the server ended with {process.returncode}, see {log}")
        with contextlib.suppress(OSError, urllib.error.URLError):
            with urllib.request.urlopen(f"{url}/readyz", timeout=1) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.05)
    raise Failed(f"{url} was not ready within {limit_s} s, see {log}")


def binary():
    run("build", ["cargo", "build", "--locked", "--bin", "rondo"], 1500)
    return [str(TARGET / "debug" / "rondo"), "serve", "--dev"]


def tests_passed(output):
    """Sums over all test binaries of one cargo run."""
    passed = sum(int(n) for n in re.findall(r"^test result: ok\. (\d+) passed", output, re.MULTILINE))
    if passed == 0:
        raise Failed("no test of that name ran")
    return passed


def check_start():
    """`make run` starts within 10 s when it is built"""
    binary()
    with server("start", ["make", "run"], cwd=ROOT) as (_, seconds):
        if seconds > 10:
            raise Failed(f"{seconds:.1f} s")
        return f"ready after {seconds:.1f} s"


def check_browsers():
    """two browsers hold a call, sound and picture in step"""
    pictures = LOGS / "browsers"
    pictures.mkdir(exist_ok=True)
    with server("browsers", binary()) as (url, _):
        output = run("browsers", ["node", "web/e2e/call.mjs", url, str(pictures)], 300)
    kept = keep_screens(pictures)
    return f"{skews(output)}; {kept} screenshots in {SCREENS}"


def skews(output):
    """How far sound and picture are apart at either end, by the last window that call.mjs measured there."""
    last = dict(re.findall(r"^(\w+) plays \w+'s picture (-?[\d.]+) ms ahead of the sound", output, re.MULTILINE))
    if len(last) != 2:
        raise Failed(f"skew was measured at {sorted(last)}, not at both ends")
    worst = max(abs(float(skew)) for skew in last.values())
    if worst >= SKEW_MS_MAX:
        raise Failed(f"sound and picture are {worst:.1f} ms apart, allowed is less than {SKEW_MS_MAX}")
    return "picture ahead of sound by " + ", ".join(f"{skew} ms at {who}" for who, skew in last.items())


def keep_screens(pictures):
    """Copies the screenshots to where the next run's logs do not wipe them; how many. Lobby and call, in each size."""
    shots = sorted(pictures.glob("*.png"))
    for what in ("lobby", "call"):
        if not any(shot.name.startswith(f"{what}-") for shot in shots):
            raise Failed(f"no screenshot of the {what} in {pictures}")
    SCREENS.mkdir(exist_ok=True)
    for shot in shots:
        shutil.copy2(shot, SCREENS)
    return len(shots)


def page_check(name, limit_s):
    """A check of web/e2e against a server of its own; its last line says what was seen."""
    pictures = LOGS / name
    pictures.mkdir(exist_ok=True)
    with server(name, binary()) as (url, _):
        output = run(name, ["node", f"web/e2e/{name}.mjs", url, str(pictures)], limit_s)
    SCREENS.mkdir(exist_ok=True)
    for shot in sorted(pictures.glob("*.png")):
        shutil.copy2(shot, SCREENS)
    return last_line(output)


def check_share():
    """a shared screen is seen by who is there and by who comes later, and taken over"""
    return page_check("share", 300)


def check_reconnect():
    """the page says that signalling, media or both are lost, and comes back by itself"""
    return page_check("reconnect", 300)


def check_adaptive():
    """a browser's picture over a link that narrows, and over one that loses, beside control runs"""
    pictures = LOGS / "adaptive"
    pictures.mkdir(exist_ok=True)
    # Built for speed: the browsers need the processor.
    run("adaptive", ["cargo", "build", "--locked", "--release", "--bin", "rondo", "--bin", "rondo-netem", "--workspace"], 1500)
    release = TARGET / "release"
    with server("adaptive", [str(release / "rondo"), "serve", "--dev"]) as (url, _):
        command = ["node", "web/e2e/adaptive.mjs", url, str(pictures), str(release / "rondo-netem")]
        output = run("adaptive", command, 1500)
    SCREENS.mkdir(exist_ok=True)
    for shot in sorted(pictures.glob("*.png")):
        shutil.copy2(shot, SCREENS)
    said = re.findall(r"^\w+(?:, (?!control).+)?: (?:stalled|concealed) .+$", output, re.MULTILINE)
    return "; ".join(line for line in said if not line.split(":")[0].endswith("control"))


def check_switches():
    """a hundred changes of the layer, which no browser's decoder notices"""
    return page_check("switches", 420)


def check_crowd():
    """31 people on two pages: only who is seen is sent and drawn, within the page's budgets"""
    return page_check("crowd", 420)


def check_pages():
    """every state of the pages says the right words, and is accessible"""
    return last_line(run("pages", ["npm", "--prefix", "web", "run", "--silent", "e2e"], 900))


def check_aiortc():
    """an independent client publishes and plays for 30 s"""
    with server("aiortc", binary()) as (url, _):
        return last_line(run("aiortc", [sys.executable, "scripts/whip_whep.py", url, "--seconds", "30"], 120))


def check_push():
    """ffmpeg's H.264 and Opus, pushed by libdatachannel, plays in Chromium and libdatachannel for 60 s"""
    return pushed("push", "--publisher", "datachannel", "--players", "chromium,datachannel", "--seconds", "60")


def check_werift():
    """werift publishes and plays for 30 s without a gap"""
    return pushed("werift", "--publisher", "werift", "--players", "werift", "--seconds", "30")


def pushed(name, *options):
    """Runs scripts/peers/push.mjs against a server of its own; what each player got."""
    with server(name, binary()) as (url, _):
        output = run(name, ["node", "scripts/peers/push.mjs", url, *options], 180)
    return "; ".join(line for line in output.splitlines()[1:-1] if ": " in line) or last_line(output)


def check_whole():
    """whole-server tests: calls, doors, events, abuse, start and end"""
    return f"{tests_passed(run('whole', ['cargo', 'test', '--locked', '--test', 'tests'], 1500))} tests passed"


def check_simulation():
    """rooms in simulated time, every seed"""
    return f"{tests_passed(run('simulation', ['cargo', 'test', '--locked', '--workspace', 'sim_'], 1500))} tests passed"


def measured(name, test, limit_s, **env):
    """One test at full size, of an optimised server on core 0 with everything else on core 1; the table it prints."""
    run(name, ["cargo", "build", "--locked", "--release", "--bin", "rondo"], 2400)
    run(name, ["cargo", "test", "--locked", "--test", "tests", "--no-run"], 1500)
    cores = sorted(os.sched_getaffinity(0))
    command = ["cargo", "test", "--locked", "--test", "tests", "--", test, "--exact", "--nocapture"]
    env["RONDO_TEST_BINARY"] = str(TARGET / "release" / "rondo")
    if len(cores) > 1 and shutil.which("taskset"):
        command = ["taskset", "-c", str(cores[1]), *command]
        env["RONDO_TEST_SERVER_CORE"] = str(cores[0])
    output = run(name, command, limit_s, **env)
    tests_passed(output)
    table = [line.removeprefix(f"{name} ") for line in output.splitlines() if line.startswith(f"{name} ")]
    return f"\n{'':<18}".join(table)


def check_churn():
    """8,000 people come and go, a third of them half way: nothing is left of them"""
    return measured("churn", "churn::nothing_is_left_of_people_who_came_and_went", 1500, RONDO_CHURN="2000")


def check_floods():
    """a call is whole beside every flood for 30 s, its audio at most 20 ms later; CPU for each refused packet"""
    return measured("flood", "floods::a_call_is_whole_beside_every_flood", 900, RONDO_FLOOD_S="30")


def check_bench():
    """Rondo beside Janus, one core each, without a packet lost; the largest room that Rondo holds on one core"""
    if not os.environ.get("SFUBENCH"):
        raise Skipped("SFUBENCH names no load tool (bench/README.md)")
    if not shutil.which("janus"):
        raise Skipped("janus is not installed")
    run("bench", ["cargo", "build", "--locked", "--release", "--bin", "rondo"], 2400)
    command = [sys.executable, "bench/side_by_side.py"]
    both, alone = LOGS / "bench", LOGS / "bench-room"
    run("bench", [*command, "--loads", *BENCH, "--out", str(both)], 1500)
    run("bench", [*command, "--only", "rondo", "--loads", "room", "--out", str(alone)], 900)
    rows = json.loads((both / "side_by_side.json").read_text())["rows"]
    room = json.loads((alone / "side_by_side.json").read_text())["rooms"][0]
    return bench_figures(rows, room)


def bench_figures(rows, room):
    """A line for each load; fails where a bound is not kept, and where Rondo lost a packet: that makes the rest cheap."""
    lines, missed = [], []
    for load, bounds in BENCH.items():
        ours, theirs = (next(row for row in rows if row["load"] == load and row["server"].startswith(server))
                        for server in ("Rondo", "Janus"))
        seen = {
            "cpu": ours["us_per_packet"] / theirs["us_per_packet"],
            "p99": ours["p99_ms"] / theirs["p99_ms"],
            "kib": ours["rss_kib_per_viewer"],
            "loss": ours["loss_pct"],
        }
        lines.append(
            f"{load}: {ours['us_per_packet']:.1f} of {theirs['us_per_packet']:.1f} us/packet ({seen['cpu']:.2f}), p99 "
            f"{ours['p99_ms']:.1f} of {theirs['p99_ms']:.1f} ms, {seen['kib']:.0f} KiB a viewer, loss {seen['loss']:.3f} %"
        )
        missed += [f"{load} {what} {seen[what]:.2f} > {most}" for what, most in ({"loss": 0} | bounds).items()
                   if seen[what] > most]
    lines.append(f"largest room: {room['viewers']} viewers, p99 {room['p99_ms']:.1f} ms; not held: {room.get('not_held')}")
    if room["viewers"] < ROOM_VIEWERS_MIN:
        missed.append(f"a room of {room['viewers']} < {ROOM_VIEWERS_MIN} viewers")
    figures = f"\n{'':<18}".join(lines)
    if missed:
        raise Failed(f"{'; '.join(missed)}\n{'':<18}{figures}")
    return figures


# The most that each load may show: shares of Janus' figure in `cpu` and `p99`, KiB a viewer.
BENCH = {
    "1x10": {},
    "1x50": {"cpu": 0.33},
    "1x100": {},
    "1x200": {"cpu": 0.28, "p99": 0.5, "kib": 145},
    "audio 10x10": {"cpu": 0.5},
}
# One core holds at least this many viewers of one publisher.
ROOM_VIEWERS_MIN = 600

CHECKS = {
    "start": check_start,
    "browsers": check_browsers,
    "pages": check_pages,
    "share": check_share,
    "reconnect": check_reconnect,
    "crowd": check_crowd,
    "adaptive": check_adaptive,
    "switches": check_switches,
    "aiortc": check_aiortc,
    "push": check_push,
    "werift": check_werift,
    "whole": check_whole,
    "simulation": check_simulation,
    "churn": check_churn,
    "floods": check_floods,
    "bench": check_bench,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checks", nargs="*", metavar="CHECK", help="which; all if none is named")
    parser.add_argument("--list", action="store_true", help="name the checks")
    options = parser.parse_args()
    if options.list:
        for name, check in CHECKS.items():
            print(f"{name:<11} {check.__doc__}")
        return 0
    unknown = [name for name in options.checks if name not in CHECKS]
    if unknown:
        parser.error(f"no such check: {', '.join(unknown)}")
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    rows = [judge(name, CHECKS[name]) for name in options.checks or CHECKS]
    print(f"\n{'':<8} {'seconds':>7}  what")
    for state, seconds, what, figure in rows:
        print(f"{state:<8} {seconds:>7.0f}  {what}\n{'':<18}{figure}")
    failed = sum(state == "FAILED" for state, *_ in rows)
    print(f"\nmake accept: {'all right' if not failed else f'{failed} of {len(rows)} failed'}; logs in {LOGS}")
    return 1 if failed else 0


def judge(name, check):
    print(f"== {name}: {check.__doc__}", flush=True)
    begun = time.monotonic()
    try:
        state, figure = "ok", check()
    except Skipped as why:
        state, figure = "skipped", str(why)
    except Failed as why:
        state, figure = "FAILED", str(why)
    print(f"== {name}: {state}: {figure}", flush=True)
    return state, time.monotonic() - begun, check.__doc__, figure


if __name__ == "__main__":
    sys.exit(main())
