#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How fast pairs leave the plans and come back, with real daemons, in real time.

  outage.py BUILD [SCENARIO...] [--outage SECONDS] [--full-load]

  killed     TCP: the store is killed; its pairs must be out within 50 ms
  stopped    TCP: the store is stopped; out within the segment deadline + 50 ms
  link       TCP over veth in network namespaces (root): one link goes down and up again, its sibling carries on
  blackhole  the same, but one path swallows everything while its link stays up
  mock       one daemon over mock rails: one of them loses every message, until its faults are cleared

For the last three: reads under failover never fail, traffic is on the rail again within the probe interval + 1 s, and
throughput comes back to at least 0.95 of what it was; both daemons' logs have less than 200 lines. With --full-load no
rail is capped and four clients read at the same time; what is judged then is failures, the return and the logs. Prints
one JSON value; exit status 1 when a bound is missed.
"""
import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
RATE = "50MB/s"
PROBE_INTERVAL_S = 1.0
LOG_LINES_MOST = 200


class Failed(Exception):
    pass


class Control:
    """The control socket: one request at a time."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.file = self.sock.makefile("rw")
        self.id = 0
        self.call("hello", version=1)

    def call(self, method, **params):
        self.id += 1
        self.file.write(json.dumps({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}) + "\n")
        self.file.flush()
        answer = json.loads(self.file.readline())
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']}")
        return answer["result"]


class Bed:
    """Daemons, loads and namespaces of one scenario; everything ends with it."""

    def __init__(self, build, is_full=False):
        self.build = build
        self.is_full = is_full
        self.dir = tempfile.mkdtemp(prefix="ry-outage-")
        self.procs = {}
        self.namespaces = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for proc in self.procs.values():
            if proc.poll() is None:
                proc.send_signal(signal.SIGCONT)
                proc.kill()
            proc.wait()
        for ns in self.namespaces:
            subprocess.run(["ip", "netns", "del", ns], check=False)
        subprocess.run(["rm", "-rf", self.dir], check=False)

    def path(self, name):
        return os.path.join(self.dir, name)

    def daemon(self, name, config, n_rails, ns=None):
        with open(self.path(name + ".yaml"), "w") as f:
            f.write(config)
        prefix = ["ip", "netns", "exec", ns] if ns else []
        lcores = f"(0-{n_rails})@(0-{os.cpu_count() - 1})"
        log = open(self.path(name + ".log"), "w")
        self.procs[name] = subprocess.Popen(
            prefix + [os.path.join(self.build, "control/daemon/railyardd"), "--lcores", lcores, "--", "--config",
                      self.path(name + ".yaml")], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def control(self, name, n_eligible=0):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                control = Control(self.path(name + ".sock"))
                while control.call("health")["n_eligible"] < n_eligible and time.monotonic() < end:
                    time.sleep(0.02)
                return control
            except OSError:
                time.sleep(0.02)
        raise Failed(f"daemon {name} does not become ready; see {self.path(name)}.log")

    def put(self, name, mib):
        with open(self.path("in"), "wb") as f:
            f.write(os.urandom(mib * MIB))
        subprocess.run([os.path.join(self.build, "control/cli/railyard"), "--socket", self.path(name + ".sock"), "put",
                        "k", self.path("in"), "--quiet"], check=True, stdout=subprocess.DEVNULL)

    def load(self, name, seconds):
        for i in range(4 if self.is_full else 1):
            out = open(self.path(f"load{i}.json"), "w")
            self.procs[f"load{i}"] = subprocess.Popen(
                [os.path.join(self.build, "perf/railyard-load"), self.path(name + ".sock"), "k", str(seconds), "4",
                 "50", "failover"], stdout=out)

    def load_lines(self):
        lines = []
        for name, proc in self.procs.items():
            if not name.startswith("load"):
                continue
            proc.send_signal(signal.SIGTERM)
            proc.wait(timeout=15)
            with open(self.path(name + ".json")) as f:
                lines += [json.loads(line) for line in f]
        return lines

    def log_lines(self):
        n = 0
        for name in ("st", "rd"):
            if name in self.procs:
                with open(self.path(name + ".log")) as f:
                    n += sum(1 for _ in f)
        return n

    def cap(self, text):
        """The line of a configuration that caps a rail; none under full load."""
        return "" if self.is_full else text


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    return [s.getsockname()[1] for s in held]


def config(bed, name, role, addresses, ports, store_addresses=None):
    """A node of TCP rails; ports are the store's."""
    lines = [f"node: {name}", f"socket: {bed.path(name)}.sock", f"roles: [{role}]", "rails:"]
    for i, address in enumerate(addresses):
        lines += [f"  - name: rail{i}", "    transport: tcp", f"    address: {address}", bed.cap(f"    rate: {RATE}")]
        if role == "store":
            lines += [f"    port: {ports[i]}"]
    if role == "store":
        lines += ["store:", "  memory: 128MiB"]
    else:
        lines += ["stores:", "  - name: st", "    endpoints:"]
        for i, address in enumerate(store_addresses or addresses):
            lines += [f"      - {{address: {address}, port: {ports[i]}, rail: rail{i}}}"]
        lines += ["reader:", "  read_arena: 128MiB", "  put_arena: 32MiB"]
    return "\n".join(lines) + "\n"


def now():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def wait_until(condition, seconds, pause=0.001):
    """Seconds it took, or None."""
    start = now()
    while now() < start + seconds:
        if condition():
            return now() - start
        time.sleep(pause)
    return None


def out_of_plans(build, how):
    with Bed(build) as bed:
        ports = free_ports(2)
        bed.daemon("st", config(bed, "st", "store", ["127.0.0.1"] * 2, ports), 2)
        bed.daemon("rd", config(bed, "rd", "reader", ["127.0.0.1"] * 2, ports), 2)
        bed.control("st")
        control = bed.control("rd", 2)
        bed.put("rd", 8)
        bed.load("rd", 60)
        time.sleep(2.5)
        deadline = max(p["segment_deadline_ns"] for p in control.call("health")["pairs"]) / 1e9
        bound = 0.05 + (deadline if how == signal.SIGSTOP else 0)
        bed.procs["st"].send_signal(how)
        took = wait_until(lambda: control.call("health")["n_eligible"] == 0, 10, 0.0005)
    return {"out_ms": round(took * 1e3, 2) if took else None, "bound_ms": round(bound * 1e3, 2),
            "segment_deadline_ms": round(deadline * 1e3, 2), "ok": took is not None and took <= bound}


def run(args, **kw):
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL, **kw)


class Wires:
    """Two namespaces, two veth pairs between them."""

    def __init__(self, bed):
        self.reader, self.store = f"ryA{os.getpid()}", f"ryB{os.getpid()}"
        for ns in (self.reader, self.store):
            run(["ip", "netns", "add", ns])
            bed.namespaces.append(ns)
            run(["ip", "-n", ns, "link", "set", "lo", "up"])
        for i in range(2):
            run(["ip", "link", "add", f"ry{i}", "netns", self.reader, "type", "veth", "peer", "name", f"ry{i}", "netns",
                 self.store])
            for ns, host in ((self.reader, 1), (self.store, 2)):
                run(["ip", "-n", ns, "addr", "add", f"10.77.{i}.{host}/24", "dev", f"ry{i}"])
                run(["ip", "-n", ns, "link", "set", f"ry{i}", "up"])

    def mac(self):
        shown = subprocess.run(["ip", "-n", self.reader, "-j", "link", "show", "ry0"], check=True, capture_output=True)
        return json.loads(shown.stdout)[0]["address"]

    def link(self, state):
        run(["ip", "-n", self.reader, "link", "set", "ry0", state])

    def blackhole(self, is_on):
        # What the store sends to the reader goes to a station that does not exist.
        run(["ip", "-n", self.store, "neigh", "replace", "10.77.0.1", "lladdr",
             "02:00:00:00:00:77" if is_on else self.mac(), "dev", "ry0", "nud", "permanent"])


def over_wires(build, outage, way, is_full):
    with Bed(build, is_full) as bed:
        wires = Wires(bed)
        ports = [7470, 7471]
        ours, theirs = (["10.77.0.1", "10.77.1.1"], ["10.77.0.2", "10.77.1.2"])
        bed.daemon("st", config(bed, "st", "store", theirs, ports), 2, wires.store)
        bed.daemon("rd", config(bed, "rd", "reader", ours, ports, theirs), 2, wires.reader)
        bed.control("st")
        control = bed.control("rd", 2)
        if way == "link":
            return heal(bed, control, outage, lambda: wires.link("down"), lambda: wires.link("up"))
        return heal(bed, control, outage, lambda: wires.blackhole(True), lambda: wires.blackhole(False))


def mock(build, outage, is_full):
    with Bed(build, is_full) as bed:
        rails = "".join(f"  - {{name: rail{i}, transport: mock, {bed.cap(f'bandwidth: {RATE}, ')}latency: 20us}}\n"
                        for i in range(2))
        bed.daemon("rd", f"node: rd\nsocket: {bed.path('rd.sock')}\nroles: [reader, store]\nfault_injection: true\n"
                   f"rails:\n{rails}stores:\n  - {{name: self, self: true}}\nstore:\n  memory: 128MiB\n"
                   "reader:\n  read_arena: 128MiB\n  put_arena: 32MiB\n", 2)
        control = bed.control("rd", 2)
        return heal(bed, control, outage,
                    lambda: control.call("fault_inject", rail="rail0", plan="lose:of=all,repeat=forever"),
                    lambda: control.call("fault_clear", rail="rail0"))


def heal(bed, control, outage, break_it, mend_it):
    def landed():
        return next(r["counters"]["rx_bytes"] for r in control.call("rails")["rails"] if r["name"] == "rail0")

    def is_out():
        return not next(p["eligible"] for p in control.call("health")["pairs"]
                        if p["rail"] == "rail0" and p["is_dialler"])

    bed.put("rd", 8)
    bed.load("rd", outage + 60)
    time.sleep(5)
    t_broken = now()
    break_it()
    out = wait_until(is_out, 10)
    time.sleep(max(0, outage - (now() - t_broken)))
    before = landed()
    t_mended = now()
    mend_it()
    back = wait_until(lambda: landed() > before, 20, 0.005)
    time.sleep(7)
    t_end = now()
    lines = bed.load_lines()
    trips = max(p.get("trips", 0) for p in control.call("health")["pairs"])
    rate_before = rate(lines, t_broken - 3, t_broken)
    rate_after = rate(lines, t_end - 4, t_end)
    failed = sum(x.get("failed", 0) for x in lines)
    bound = PROBE_INTERVAL_S + 1
    return {"outage_s": outage, "out_ms": round(out * 1e3, 1) if out else None,
            "reads_ok": sum(x.get("ok", 0) for x in lines), "reads_failed": failed,
            "causes": sorted({x["error"] + ": " + x["cause"] for x in lines if "error" in x}),
            "longest_read_ms": round(max(x.get("longest_ns", 0) for x in lines) / 1e6, 1),
            "back_ms": round(back * 1e3, 1) if back else None, "back_bound_ms": bound * 1e3, "trips": trips,
            "bytes_per_s_before": rate_before, "bytes_per_s_during": rate(lines, t_mended - outage / 2, t_mended),
            "bytes_per_s_after": rate_after, "after_over_before": round(rate_after / max(rate_before, 1), 3),
            "log_lines": bed.log_lines(),
            "ok": failed == 0 and back is not None and back <= bound and bed.log_lines() < LOG_LINES_MOST
                  and (bed.is_full or rate_after >= 0.95 * rate_before)}


def rate(lines, start, end):
    chosen = [x["bytes"] for x in lines if "bytes" in x and start <= x["t_ns"] / 1e9 <= end]
    return round(sum(chosen) / (end - start))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--outage", type=float, default=5, help="seconds that the rail is away (default 5)")
    parser.add_argument("--full-load", action="store_true", help="no caps, four clients")
    args = parser.parse_args()
    scenarios = {
        "killed": lambda: out_of_plans(args.build, signal.SIGKILL),
        "stopped": lambda: out_of_plans(args.build, signal.SIGSTOP),
        "mock": lambda: mock(args.build, args.outage, args.full_load),
        "link": lambda: over_wires(args.build, args.outage, "link", args.full_load),
        "blackhole": lambda: over_wires(args.build, args.outage, "blackhole", args.full_load),
    }
    unknown = [s for s in args.scenario if s not in scenarios]
    if unknown:
        parser.error(f"no such scenario: {unknown[0]}; there are {', '.join(scenarios)}")
    results = {}
    for name in args.scenario or scenarios:
        try:
            results[name] = scenarios[name]()
        except (Failed, OSError, subprocess.SubprocessError) as e:
            results[name] = {"ok": False, "error": str(e)}
    print(json.dumps(results, indent=2))
    return 0 if all(r["ok"] for r in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
