#!/usr/bin/env python3
"""Rondo and Janus under the same load in the same run, each on one core; see README.md beside this file.

Writes side_by_side.json and side_by_side.md. Standard library only. Without SFUBENCH, Rondo alone by `rondo load`.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Inside a network namespace of our own any private address will do; Janus' ICE library skips the loopback interface.
ADDRESS = "10.99.0.1"
SERVER_CORE, TOOL_CORE = 0, 1
JANUS_PORT, RONDO_PORT, RONDO_MEDIA_PORT = 8088, 7880, 7882
JANUS_MODULES = Path("/usr/lib/x86_64-linux-gnu/janus")



@dataclass(frozen=True)
class Load:
    """One room: publishers, each of Opus (50 packets/s) and, unless `audio_only`, VP8 (1.2 Mbit/s); and viewers."""

    publishers: int
    viewers: int
    audio_only: bool = False


LOADS = {
    "1x10": Load(1, 10),
    "1x50": Load(1, 50),
    "1x100": Load(1, 100),
    "1x200": Load(1, 200),
    "audio 10x10": Load(10, 10, audio_only=True),
}
# The name of the search for the largest room, beside the loads.
ROOM = "room"
# It grows by this factor until a level is not held: p99 and loss within these bounds, nobody left out.
ROOM_FIRST, ROOM_FACTOR, ROOM_MAX = 100, 1.2, 2000
ROOM_P99_MS, ROOM_LOSS_PCT, ROOM_WINDOW_S = 50, 0.1, 4
# Viewers that decrypt in the large room; the others count clear headers, for the tool's core must not be the limit.
ROOM_PROBES = 8


class CannotRun(Exception):
    """Something that the comparison needs is not here; the message says what to do."""


def realtime_prefix():
    """`chrt -f 1` where the process may: other work on a shared machine then disturbs both servers less."""
    if shutil.which("chrt") and subprocess.run(["chrt", "-f", "1", "true"], capture_output=True).returncode == 0:
        return ["chrt", "-f", "1"]
    return []


def pinned(core, command):
    return ["taskset", "-c", str(core), *realtime_prefix(), *command]


def wait_for_http(url, process, seconds=20):
    """Waits until `url` answers at all, whatever the status."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise CannotRun(f"the server ended with {process.returncode} before it answered {url}")
        with contextlib.suppress(OSError):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(url, timeout=1).close()
            return
        time.sleep(0.1)
    raise CannotRun(f"{url} did not answer within {seconds} s")


@contextlib.contextmanager
def running(command, url, log, env=None):
    """The server process, ready; ended when the block is left."""
    with open(log, "wb") as out:
        # In the folder of the run: a rondo.toml beside the sources is the developer's.
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=log.parent)
    try:
        wait_for_http(url, process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Janus:
    """Debian's Janus with the VideoRoom plugin and the HTTP transport only, one event loop, ICE-lite."""

    name = "Janus, 1 loop"

    def __init__(self, folder):
        if not shutil.which("janus"):
            raise CannotRun("janus is not installed; Debian's package `janus` has it (scripts/setup.sh janus)")
        self.folder = folder
        for kind, module in (("plugins", "libjanus_videoroom.so"), ("transports", "libjanus_http.so")):
            (folder / kind).mkdir()
            found = sorted((JANUS_MODULES / kind).glob(module + "*"))
            if not found:
                raise CannotRun(f"Janus has no {module} in {JANUS_MODULES / kind}")
            (folder / kind / module).symlink_to(found[0])
        for kind in ("events", "loggers"):
            (folder / kind).mkdir()
        (folder / "janus.jcfg").write_text(
            f"""general: {{
    configs_folder = "{folder}"
    plugins_folder = "{folder}/plugins"
    transports_folder = "{folder}/transports"
    events_folder = "{folder}/events"
    loggers_folder = "{folder}/loggers"
    debug_level = 2
    session_timeout = 180
    event_loops = 1
    server_name = "bench"
}}
nat: {{
    ice_lite = true
    ice_enforce_list = "{ADDRESS}"
}}
"""
        )
        (folder / "janus.transport.http.jcfg").write_text(
            f"""general: {{
    json = "compact"
    base_path = "/janus"
    http = true
    port = {JANUS_PORT}
    ip = "127.0.0.1"
    https = false
}}
admin: {{
    admin_http = false
}}
"""
        )
        (folder / "janus.plugin.videoroom.jcfg").write_text("general: {\n}\n")

    def start(self):
        command = pinned(SERVER_CORE, ["janus", "-F", str(self.folder)])
        return running(command, f"http://127.0.0.1:{JANUS_PORT}/janus/info", self.folder / "janus.log")

    def sfubench_target(self):
        return ["--target", "janus-videoroom", "--janus", f"http://127.0.0.1:{JANUS_PORT}/janus"]


class Rondo:
    """The binary given, one worker."""

    name = "Rondo"
    url = f"http://127.0.0.1:{RONDO_PORT}"

    def __init__(self, folder, binary):
        if not os.access(binary, os.X_OK):
            raise CannotRun(f"{binary} is not there; `cargo build --release` makes it, --rondo names another")
        self.folder, self.binary = folder, binary.resolve()

    def start(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("RONDO_")}
        env |= {
            "RONDO_HTTP__BIND": f"127.0.0.1:{RONDO_PORT}",
            "RONDO_MEDIA__BIND": ADDRESS,
            "RONDO_MEDIA__FIRST_PORT": str(RONDO_MEDIA_PORT),
            "RONDO_MEDIA__WORKERS": "1",
            # taskset has chosen the core.
            "RONDO_MEDIA__PIN": "false",
            # The core is to be the limit of the large room.
            "RONDO_LIMITS__PARTICIPANTS_PER_ROOM": str(2 * ROOM_MAX),
            "RONDO_LIMITS__SESSIONS_PER_WORKER": str(2 * ROOM_MAX),
        }
        command = pinned(SERVER_CORE, [str(self.binary), "serve", "--dev", "--advertise", ADDRESS])
        return running(command, f"{self.url}/readyz", self.folder / "rondo.log", env)

    def sfubench_target(self):
        return ["--target", "whip-whep", "--whip", self.url + "/whip/{room}/{pub}", "--whep", self.url + "/whep/{room}"]


def run_tool(what, command, out, limit_s, may_fail=False):
    """Runs a load tool on its core; the JSON that it wrote to `out`, and what it printed."""
    out.unlink(missing_ok=True)
    done = subprocess.run(
        pinned(TOOL_CORE, command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit_s
    )
    if (done.returncode != 0 and not may_fail) or not out.exists():
        raise CannotRun(f"{what}: the load tool ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return json.loads(out.read_text()), done.stdout


class Sfubench:
    """A load tool that is no part of Rondo, and so may judge both; `SFUBENCH` names it."""

    name = "an outside load tool (SFUBENCH)"

    def __init__(self, path, folder):
        if not os.access(path, os.X_OK):
            raise CannotRun(f"SFUBENCH names {path}, which cannot be run")
        self.path, self.out = path, folder / "run.json"

    def command(self, server, process):
        command = [self.path, *server.sfubench_target(), "--ip", ADDRESS, "--label", server.name]
        return [*command, "--pid", str(process.pid), "--server-core", str(SERVER_CORE), "--json", str(self.out)]

    def measure(self, server, load, options):
        """One load on one fresh server: the figures of its row, and the tool's own JSON."""
        with server.start() as process:
            command = self.command(server, process)
            command += ["--pubs", str(load.publishers), "--subs", str(load.viewers)]
            command += ["--media", "audio"] if load.audio_only else []
            command += ["--windows", str(options.windows), "--window", str(options.window), "--warmup", "2"]
            # Joining, the windows, and taking leave.
            limit_s = 120 + options.windows * (options.window + 5)
            result, _ = run_tool(server.name, command, self.out, limit_s)
        median, windows = result["median"], result["windows"]
        figures = {
            "us_per_packet": median["cpu_us_per_packet"],
            "us_per_packet_min": median["cpu_us_per_packet_min"],
            "p50_ms": median["p50_us"] / 1000,
            "p99_ms": median["p99_us"] / 1000,
            # The worst window: a loss in one of three would not show in a median.
            "loss_pct": max(window["loss_pct"] for window in windows),
            "starved": max(window["starved_audio"] + window["starved_video"] for window in windows),
            "rss_kib_per_viewer": result["rss_kib_per_subscriber"][0],
            "packets_per_s": median["fwd_pps"],
            "server_cores_pct": median["server_cores_pct"],
            "core_busy_pct": median["core_busy_pct"],
            "tool_cores_pct": median["tool_cores_pct"],
            "join_s": result["join_s"],
        }
        return figures, result

    def largest_room(self, server):
        """Levels of the largest room, why it ended if not by a level, and the tool's own JSON."""
        with server.start() as process:
            command = self.command(server, process)
            command += ["--ramp", "--ramp-start", str(ROOM_FIRST), "--ramp-factor", str(ROOM_FACTOR)]
            command += ["--ramp-max", str(ROOM_MAX), "--ramp-window", str(ROOM_WINDOW_S)]
            command += ["--p99-ms", str(ROOM_P99_MS), "--max-loss", str(ROOM_LOSS_PCT)]
            command += ["--twcc", "off", "--probes", str(ROOM_PROBES)]
            result, printed = run_tool(server.name, command, self.out, 900)
        levels = [
            Level(
                viewers=level["subs_per_room"],
                held=level["held"],
                us_per_packet=level["server"]["cpu_us_per_packet"],
                p99_ms=level["latency"]["p99_us"] / 1000,
                loss_pct=level["loss_pct"],
                server_cores_pct=level["server"]["cores_pct"],
                tool_cores_pct=level["tool"]["cores_pct"],
            )
            for level in result["ramp"]["levels"]
        ]
        # Joins that failed are no level; a line says so.
        stopped = next((line for line in printed.splitlines() if line.startswith("ramp stops at ")), None)
        return levels, stopped, result


class RondoLoad:
    """`rondo load`, which everybody has: it can load Rondo alone, and is Rondo judging itself."""

    name = "`rondo load`"
    JOINS_PER_S = 50

    def __init__(self, binary, folder):
        self.binary, self.out = str(binary.resolve()), folder / "run.json"

    def run(self, server, load, hold_s, more=(), may_fail=False):
        with server.start() as process:
            command = [self.binary, "load", "live", "--url", server.url, "--ip", ADDRESS, "--pid", str(process.pid)]
            command += ["--publishers", str(load.publishers), "--viewers", str(load.viewers)]
            command += ["--audio-only"] if load.audio_only else []
            command += ["--rate", str(self.JOINS_PER_S), "--settle", "2s", "--hold", f"{hold_s:g}s"]
            command += ["--threads", "1", "--json", str(self.out), *more]
            limit_s = 120 + hold_s + load.viewers / self.JOINS_PER_S
            return run_tool(server.name, command, self.out, limit_s, may_fail)[0]

    def measure(self, server, load, options):
        """As [`Sfubench.measure`], over all windows at once."""
        result = self.run(server, load, options.windows * options.window)
        media, of_server = result["media"], result["server"]
        figures = {
            "us_per_packet": of_server["us_per_packet"],
            "us_per_packet_min": None,
            "p50_ms": media["latency"]["p50_ms"],
            "p99_ms": media["latency"]["p99_ms"],
            "loss_pct": media["loss_pct"],
            "starved": media["starved"],
            "rss_kib_per_viewer": of_server["resident_kib_per_viewer"],
            "packets_per_s": media["packets_per_s"],
            "server_cores_pct": of_server["cores_pct"],
            "core_busy_pct": None,
            "tool_cores_pct": result["tool"]["cores_pct"],
            "join_s": None,
        }
        return figures, result

    def largest_room(self, server):
        """As [`Sfubench.largest_room`], on a fresh server for each level."""
        levels, results, stopped, viewers = [], [], None, ROOM_FIRST
        while viewers <= ROOM_MAX and all(level.held for level in levels):
            more = ["--no-twcc", "--probes", str(ROOM_PROBES)]
            result = self.run(server, Load(1, viewers), ROOM_WINDOW_S, more, may_fail=True)
            results.append(result)
            media, joins = result["media"], result["joins"]
            p99_ms = media["latency"]["p99_ms"]
            held = p99_ms is not None and p99_ms <= ROOM_P99_MS and media["loss_pct"] <= ROOM_LOSS_PCT
            if joins["connected"] < joins["asked"]:
                stopped = f"{viewers}: {joins['connected']} of {joins['asked']} connected"
            levels.append(
                Level(
                    viewers=viewers,
                    held=held and stopped is None,
                    us_per_packet=result["server"]["us_per_packet"],
                    p99_ms=p99_ms,
                    loss_pct=media["loss_pct"],
                    server_cores_pct=result["server"]["cores_pct"],
                    tool_cores_pct=result["tool"]["cores_pct"],
                )
            )
            viewers = max(int(viewers * ROOM_FACTOR + 0.999), viewers + 1)
        return levels, stopped, results


@dataclass(frozen=True)
class Level:
    """One size of the large room."""

    viewers: int
    held: bool
    us_per_packet: float | None
    p99_ms: float | None
    loss_pct: float
    server_cores_pct: float
    tool_cores_pct: float


def room_row(levels, stopped):
    """What the search found: the largest level that held, and what ended it."""
    held = [level for level in levels if level.held]
    if not held:
        raise CannotRun(f"not even {ROOM_FIRST} viewers were held")
    best = max(held, key=lambda level: level.viewers)
    row = {key: getattr(best, key) for key in ("viewers", "us_per_packet", "p99_ms", "loss_pct")}
    row |= {"server_cores_pct": best.server_cores_pct, "tool_cores_pct": best.tool_cores_pct}
    beyond = [level for level in levels if not level.held and level.viewers > best.viewers]
    if stopped:
        row["not_held"] = stopped
    elif beyond:
        last = beyond[-1]
        row["not_held"] = f"{last.viewers}: p99 {shown(last.p99_ms, 1)} ms, loss {last.loss_pct:.2f} %"
    return row


def shown(value, digits):
    return "–" if value is None else f"{value:.{digits}f}"


def table(rows, machine):
    """A markdown table of all rows."""
    lines = [
        f"{machine}",
        "",
        "| load | server | us/packet (min) | of Janus | p50 ms | p99 ms | loss % (worst) | KiB per viewer | packets/s out "
        "| core busy % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    janus = {row["load"]: row["us_per_packet"] for row in rows if row["server"] == Janus.name and "error" not in row}

    for row in rows:
        if "error" in row:
            lines.append(f"| {row['load']} | {row['server']} | failed: {row['error'].splitlines()[0]} | | | | | | | |")
            continue
        share = row["us_per_packet"] / janus[row["load"]] if row["server"] == Rondo.name and row["load"] in janus else None
        lines.append(
            f"| {row['load']} | {row['server']} | {shown(row['us_per_packet'], 1)} ({shown(row['us_per_packet_min'], 1)}) "
            f"| {shown(share, 2)} | {shown(row['p50_ms'], 2)} | {shown(row['p99_ms'], 2)} | {shown(row['loss_pct'], 3)} "
            f"| {shown(row['rss_kib_per_viewer'], 0)} | {shown(row['packets_per_s'], 0)} "
            f"| {shown(row['core_busy_pct'], 0)} |"
        )
    return "\n".join(lines) + "\n"


def room_table(rows):
    """A markdown table of the largest rooms."""
    lines = [
        f"The largest room on one core: p99 ≤ {ROOM_P99_MS} ms, loss ≤ {ROOM_LOSS_PCT} %; {ROOM_PROBES} viewers decrypt, no "
        f"transport-wide feedback; grown by {ROOM_FACTOR:g}.",
        "",
        "| server | viewers held | us/packet | p99 ms | loss % | server % | tool % | not held |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['server']} | failed: {row['error'].splitlines()[0]} | | | | | | |")
            continue
        lines.append(
            f"| {row['server']} | {row['viewers']} | {shown(row['us_per_packet'], 1)} | {shown(row['p99_ms'], 1)} "
            f"| {shown(row['loss_pct'], 3)} | {row['server_cores_pct']:.0f} | {row['tool_cores_pct']:.0f} "
            f"| {row.get('not_held', '–')} |"
        )
    return "\n".join(lines) + "\n"


def prepare_network():
    """Loopback and one private address; the namespace is ours and goes away with us."""
    for command in (
        "ip link set lo up",
        "ip link add bench0 type veth peer name bench1",
        f"ip addr add {ADDRESS}/24 dev bench0",
        "ip link set bench0 up",
        "ip link set bench1 up",
    ):
        subprocess.run(command.split(), check=True)


def enter_namespace():
    """Starts this script again inside a network namespace of its own."""
    unshare = ["unshare", "--net"]
    if os.geteuid() != 0:
        unshare = ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        raise CannotRun("a network namespace cannot be made here; run as root")
    os.execvp(unshare[0], [*unshare, sys.executable, __file__, *sys.argv[1:], "--inside"])


def arguments():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rondo", type=Path, default=target / "release" / "rondo", help="the binary to measure")
    parser.add_argument("--agree", action="store_true", help="SFUBENCH and `rondo load` on Rondo in turn: do they agree?")
    parser.add_argument("--only", choices=("rondo", "janus"), help="measure one server only")
    every = [*LOADS, ROOM]
    parser.add_argument("--loads", nargs="+", choices=every, default=every, help=f"which loads; {ROOM}: the largest")
    parser.add_argument("--windows", type=int, default=3, help="windows per run; the table shows their median")
    parser.add_argument("--window", type=float, default=4, help="seconds per window")
    parser.add_argument("--out", type=Path, default=target / "bench", help="folder for the results")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    if (os.cpu_count() or 1) < 2:
        raise CannotRun("two cores are needed: one for the server, one for the load tool")
    outside = os.environ.get("SFUBENCH")
    if not outside and options.only == "janus":
        raise CannotRun("SFUBENCH is not set, and `rondo load` cannot load Janus (bench/README.md)")
    if not outside and options.agree:
        raise CannotRun("SFUBENCH is not set: there is nobody for `rondo load` to agree with (bench/README.md)")
    if not options.inside:
        if outside and not options.agree and options.only != "rondo" and not shutil.which("janus"):
            # Here, where there still is a network. Without it Rondo is measured alone.
            subprocess.run([str(ROOT / "scripts" / "setup.sh"), "janus"], check=False)
        enter_namespace()
    prepare_network()
    if options.agree:
        agree(options, outside)
    else:
        run_all(options, outside)


def run_all(options, outside):
    rows, rooms, raw = [], [], []
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        tool = Sfubench(outside, folder) if outside else RondoLoad(options.rondo, folder)
        servers = []
        if options.only != "janus":
            servers.append(Rondo(folder, options.rondo))
        if not outside:
            print("bench: SFUBENCH is not set: Rondo is measured by `rondo load`, and Janus is not (bench/README.md)")
        elif options.only != "rondo":
            try:
                servers.append(Janus(folder))
            except CannotRun as problem:
                if not servers:
                    raise
                print(f"bench: Rondo is measured alone: {problem}", file=sys.stderr)
        # Server by server within a load: what else the machine does then falls on both alike.
        for load in options.loads:
            for server in servers:
                row = {"load": load, "server": server.name}
                try:
                    if load == ROOM:
                        levels, stopped, result = tool.largest_room(server)
                        figures = room_row(levels, stopped)
                    else:
                        figures, result = tool.measure(server, LOADS[load], options)
                    raw.append({"load": load, "server": server.name, "result": result})
                    row |= figures
                except (CannotRun, subprocess.TimeoutExpired) as problem:
                    row["error"] = str(problem)
                (rooms if load == ROOM else rows).append(row)
                print(json.dumps(row), flush=True)
    machine = (
        f"{os.cpu_count()} cores, {cpu_name()}, Linux {platform.release()}; measured by {tool.name}; "
        f"medians of {options.windows} windows of {options.window:g} s"
    )
    if not outside:
        machine = machine.replace("medians of", "means over")
    text = "\n".join([table(rows, machine)] if rows else [machine + "\n"]) + ("\n" + room_table(rooms) if rooms else "")
    everything = {"machine": machine, "rows": rows, "rooms": rooms, "raw": raw}
    (options.out / "side_by_side.json").write_text(json.dumps(everything, indent=1))
    (options.out / "side_by_side.md").write_text(text)
    print("\n" + text)
    print(f"written to {options.out}/side_by_side.md and .json")
    if any("error" in row for row in rows + rooms):
        sys.exit(1)


# What two tools are compared by: name, figure, digits.
AGREED = (("us/packet", "us_per_packet", 2), ("p50 ms", "p50_ms", 2), ("p99 ms", "p99_ms", 2), ("loss %", "loss_pct", 3))
AGREED += (("KiB per viewer", "rss_kib_per_viewer", 0), ("packets/s", "packets_per_s", 0), ("tool %", "tool_cores_pct", 0))


def agree(options, outside):
    """Each load by both tools in turn, twice, always on a fresh server; a table of means, and of their quotients."""
    names = [name for name, _, _ in AGREED]
    lines = ["| load | tool | " + " | ".join(names) + " |", "| --- " * (len(names) + 2) + "|"]
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        tools = (Sfubench(outside, folder), RondoLoad(options.rondo, folder))
        server = Rondo(folder, options.rondo)
        for load in [load for load in options.loads if load != ROOM]:
            runs = [[tool.measure(server, LOADS[load], options)[0] for tool in tools] for _ in range(2)]
            means = []
            for n, tool in enumerate(tools):
                print(json.dumps({"load": load, "tool": tool.name, "runs": [run[n] for run in runs]}), flush=True)
                means.append({key: sum(run[n][key] for run in runs) / len(runs) for _, key, _ in AGREED})
                cells = [shown(means[n][key], digits) for _, key, digits in AGREED]
                lines.append(f"| {load} | {tool.name} | " + " | ".join(cells) + " |")
            shares = [shown(means[1][key] / means[0][key] if means[0][key] else None, 2) for _, key, _ in AGREED]
            lines.append(f"| {load} | second of first | " + " | ".join(shares) + " |")
    print("\n" + "\n".join(lines))


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    try:
        main()
    except CannotRun as problem:
        print(f"bench: {problem}", file=sys.stderr)
        sys.exit(2)
