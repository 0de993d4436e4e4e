#!/usr/bin/env python3
"""Rondo and Janus under the same load in the same run, each on one core; see README.md beside this file.

Writes side_by_side.json and side_by_side.md. Standard library only.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Inside a network namespace of our own any private address will do; Janus' ICE library skips the loopback interface.
ADDRESS = "10.99.0.1"
SERVER_CORE, TOOL_CORE = 0, 1
JANUS_PORT, RONDO_PORT, RONDO_MEDIA_PORT = 8088, 7880, 7882
JANUS_MODULES = Path("/usr/lib/x86_64-linux-gnu/janus")

# name: what the load tool is told. "1x50" is one publisher (Opus 50/s, VP8 1.2 Mbit/s) and 50 viewers.
LOADS = {
    "1x10": ["--subs", "10"],
    "1x50": ["--subs", "50"],
    "1x200": ["--subs", "200"],
    "audio 10x10": ["--media", "audio", "--pubs", "10", "--subs", "10"],
}


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
            raise CannotRun("janus is not installed; Debian's package `janus` has it")
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

    def target(self):
        return ["--target", "janus-videoroom", "--janus", f"http://127.0.0.1:{JANUS_PORT}/janus"]


class Rondo:
    """The binary given, one worker."""

    name = "Rondo"

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
        }
        command = pinned(SERVER_CORE, [str(self.binary), "serve", "--dev", "--advertise", ADDRESS])
        return running(command, f"http://127.0.0.1:{RONDO_PORT}/readyz", self.folder / "rondo.log", env)

    def target(self):
        base = f"http://127.0.0.1:{RONDO_PORT}"
        return ["--target", "whip-whep", "--whip", base + "/whip/{room}/{pub}", "--whep", base + "/whep/{room}"]


def measure(tool, server, load, options, folder):
    """Runs one load against one fresh server; the load tool's own JSON."""
    out = folder / "run.json"
    out.unlink(missing_ok=True)
    with server.start() as process:
        command = pinned(TOOL_CORE, [tool, *server.target(), *LOADS[load], "--ip", ADDRESS])
        command += ["--pid", str(process.pid), "--server-core", str(SERVER_CORE), "--label", server.name]
        command += ["--windows", str(options.windows), "--window", str(options.window), "--warmup", "2"]
        command += ["--json", str(out)]
        # Joining 200 viewers, the windows, and taking leave.
        limit = 120 + options.windows * (options.window + 5)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
        if done.returncode != 0 or not out.exists():
            raise CannotRun(f"{server.name}, {load}: the load tool ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return json.loads(out.read_text())


def summary(result):
    """The figures of one run that the table shows."""
    median, windows = result["median"], result["windows"]
    return {
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


def table(rows, machine):
    """A markdown table of all rows."""
    lines = [
        f"{machine}",
        "",
        "| load | server | us/packet (min) | p50 ms | p99 ms | loss % (worst) | KiB per viewer | packets/s out | core busy % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]

    def show(value, digits):
        return "–" if value is None else f"{value:.{digits}f}"

    for row in rows:
        if "error" in row:
            lines.append(f"| {row['load']} | {row['server']} | failed: {row['error'].splitlines()[0]} | | | | | | |")
            continue
        lines.append(
            f"| {row['load']} | {row['server']} | {show(row['us_per_packet'], 1)} ({show(row['us_per_packet_min'], 1)}) "
            f"| {show(row['p50_ms'], 2)} | {show(row['p99_ms'], 2)} | {show(row['loss_pct'], 3)} "
            f"| {show(row['rss_kib_per_viewer'], 0)} | {show(row['packets_per_s'], 0)} "
            f"| {show(row['core_busy_pct'], 0)} |"
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
    parser.add_argument("--only", choices=("rondo", "janus"), help="measure one server only")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS), help="which loads")
    parser.add_argument("--windows", type=int, default=3, help="windows per run; the table shows their median")
    parser.add_argument("--window", type=float, default=4, help="seconds per window")
    parser.add_argument("--out", type=Path, default=target / "bench", help="folder for the results")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    tool = os.environ.get("SFUBENCH")
    if not tool:
        raise CannotRun(
            "SFUBENCH is not set: it names the load tool that publishes, plays and measures (bench/README.md)"
        )
    if not os.access(tool, os.X_OK):
        raise CannotRun(f"SFUBENCH names {tool}, which cannot be run")
    if (os.cpu_count() or 1) < 2:
        raise CannotRun("two cores are needed: one for the server, one for the load tool")
    if not options.inside:
        enter_namespace()
    prepare_network()
    run_all(options, tool)


def run_all(options, tool):
    rows, raw = [], []
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        servers = []
        if options.only != "janus":
            servers.append(Rondo(folder, options.rondo))
        if options.only != "rondo":
            servers.append(Janus(folder))
        # Server by server within a load: what else the machine does then falls on both alike.
        for load in options.loads:
            for server in servers:
                row = {"load": load, "server": server.name}
                try:
                    result = measure(tool, server, load, options, folder)
                    raw.append({"load": load, "server": server.name, "result": result})
                    row |= summary(result)
                except (CannotRun, subprocess.TimeoutExpired) as problem:
                    row["error"] = str(problem)
                rows.append(row)
                print(json.dumps(row), flush=True)
    machine = (
        f"{os.cpu_count()} cores, {cpu_name()}, Linux {platform.release()}; "
        f"medians of {options.windows} windows of {options.window:g} s"
    )
    (options.out / "side_by_side.json").write_text(json.dumps({"machine": machine, "rows": rows, "raw": raw}, indent=1))
    (options.out / "side_by_side.md").write_text(table(rows, machine))
    print("\n" + table(rows, machine))
    print(f"written to {options.out}/side_by_side.md and .json")
    if any("error" in row for row in rows):
        sys.exit(1)


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
