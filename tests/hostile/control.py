# SPDX-License-Identifier: BSD-3-Clause
"""Attacks on the control socket: usage: control.py SOCKET CASE. Exit 0: the daemon answered as it should, and others at once.

Every case keeps a bystander, a connection that asks for `version` in between: its answer must come within a second or two whatever the
attacker does. A case's function is its name; what it returns is printed.
"""

import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import time

LINE_MAX = 64 << 10
STALL_S = 5  # the daemon drops who takes nothing for so long
SLOW_S = 2  # a bystander that waits longer was affected
HELLO = b'{"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"version": 1}}\n'


class Talk:
    """One connection, a line at a time."""

    def __init__(self, greet=True, timeout=20):
        self.s = socket.socket(socket.AF_UNIX)
        self.rest = b""
        # Waits in line while the backlog is full, which connect() does not under a time-out of Python's.
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", timeout, 0))
        try:
            self.s.connect(PATH)
        except BlockingIOError:
            raise AssertionError("nobody accepts") from None
        self.s.settimeout(timeout)
        if greet:
            self.send(HELLO)
            assert self.line()["result"]["version"] == 1

    def send(self, data):
        """False: the daemon closed its end."""
        try:
            self.s.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def line(self):
        """The next answer; None at the end of the connection."""
        while b"\n" not in self.rest:
            try:
                more = self.s.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self.rest += more
        text, self.rest = self.rest.split(b"\n", 1)
        return json.loads(text)

    def ask(self, method, params=None, ident=7):
        request = {"jsonrpc": "2.0", "id": ident, "method": method}
        if params is not None:
            request["params"] = params
        self.send(json.dumps(request).encode() + b"\n")
        return self.line()

    def close(self):
        self.s.close()


class Bystander:
    def __init__(self):
        self.talk = Talk()
        self.slowest = 0.0
        self.n = 0

    def look(self):
        start = time.monotonic()
        answer = self.talk.ask("version")
        self.slowest = max(self.slowest, time.monotonic() - start)
        self.n += 1
        assert answer and "result" in answer, f"the bystander got {answer}"
        assert self.slowest < SLOW_S, f"the bystander waited {self.slowest:.1f} s"


def is_typed(answer, *codes):
    """An error with a code, a status by name and a text."""
    error = answer.get("error") if answer else None
    assert error and error["message"] and error["data"]["status"], f"no typed error: {answer}"
    assert not codes or error["code"] in codes, f"another error than {codes}: {error}"
    return error


def too_long(by, start, filler):
    """Ten megabytes that begin so: refused after 64 KiB, and the connection ends."""
    talk = Talk()
    sent = len(start)
    talk.send(start)
    while sent < 10 << 20 and talk.send(filler):
        sent += len(filler)
        by.look()
    is_typed(talk.line(), -32600)
    assert talk.line() is None, "the connection goes on"
    talk.close()
    return sent


def ten_megabytes_without_end(by):
    return too_long(by, b"", b"x" * 65536)


def ten_megabytes_of_json(by):
    return too_long(by, b'{"jsonrpc": "2.0", "id": 1, "method": "plan", "params": {"store": "', b"a" * 65536)


def half_a_line(by):
    """Held back for a while, many at a time: it costs nobody anything, and its rest is answered."""
    talks = [Talk() for _ in range(40)]
    half = b'{"jsonrpc": "2.0", "id": 9, "meth'
    for talk in talks:
        talk.send(half)
        by.look()
    for talk in talks:
        for byte in b'od": "version"}\n':
            talk.send(bytes([byte]))
        assert talk.line()["id"] == 9
        talk.close()
    return len(talks)


def deep_nesting(by):
    n = 0
    for start, end in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")):
        for depth in (100, 3000, 60000 // len(start)):
            for closed in (True, False):
                talk = Talk()
                line = start * depth + b"1" + (end * depth if closed else b"")
                talk.send(line[: LINE_MAX - 2] + b"\n")
                is_typed(talk.line(), -32700, -32600)
                assert "result" in talk.ask("version"), "the connection is of no more use"
                talk.close()
                by.look()
                n += 1
    params = b'{"jsonrpc": "2.0", "id": 1, "method": "version", "params": ' + b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"}\n"
    talk = Talk()
    talk.send(params)
    is_typed(talk.line(), -32602)
    return n + 1


WRONG = [None, True, -1, 0, 1.5, 1e300, 2**62, -(2**63), "", "x", "\u0000", "\x7f" * 5000, [], [1], {}, {"a": 1}]
RIGHT = {"uint": lambda v, p: type(v) is int and p["least"] <= v <= p["most"],
         "text": lambda v, p: isinstance(v, str) and p["least"] <= len(v.encode()) <= p["most"],
         "boolean": lambda v, p: isinstance(v, bool)}


def wrong_types(by):
    """Each parameter of each method with values that its kind or range does not allow; and parameters of another shape."""
    talk = Talk()
    n = 0
    for method in talk.ask("help")["result"]["methods"]:
        shapes = [[], [1], "x", 1, True, {"no_such_parameter": 1}, {"no such": {"deep": []}}]
        if any(p["required"] for p in method["params"]):
            shapes.append({})
        for params in shapes:
            is_typed(talk.ask(method["name"], params), -32602)
            n += 1
        for p in method["params"]:
            for value in WRONG:
                if RIGHT[p["kind"]](value, p):
                    continue
                is_typed(talk.ask(method["name"], {p["name"]: value}), -32700 if value == "\u0000" else -32602)
                n += 1
        by.look()
    assert talk.ask("status")["result"]["is_draining"] is False, "one of them was done"
    return n


def unknown_methods(by):
    talk = Talk()
    names = ["", "shutdown ", "Shutdown", "shutdow", "rails\n", "%s%n", "../attach", "\u0000attach", "m" * 60000, "\u00e9" * 33, "hello\u0000"]
    for name in names:
        is_typed(talk.ask(name), -32700 if "\u0000" in name else -32601)
        by.look()
    for name in (None, 1, [], {}, True):
        is_typed(talk.ask(name), -32600)
    return len(names) + 5


def no_requests(by):
    """What is no request, byte by byte."""
    lines = [b"", b" ", b"\r", b"null", b"1", b'"x"', b"[]", b"[{}]", b"{}", b"{", b"}", b"\x00", b"\xff\xfe", b'{"id": 1}', b"nan", b"1e999",
             b'{"id": 1, "method": "version", "id": 2}', b'{"id": [], "method": "version"}', b'{"jsonrpc": "1.0", "id": 1, "method": "version"}',
             b'{"id": 1, "method": "vers\xc3"}', b'{"id": 99999999999999999999, "method": "version"}', b"\xef\xbb\xbf{}",
             b'{"id": 1, "method": "version"} {"id": 2, "method": "version"}', b"'" * 60000, os.urandom(1000).replace(b"\n", b"")]
    talk = Talk()
    for line in lines:
        talk.send(line + b"\n")
        is_typed(talk.line(), -32700, -32600)
        by.look()
    stranger = Talk(greet=False)
    is_typed(stranger.ask("status"), -32600)
    return len(lines)


def beside(by, work):
    """Runs an attack in a process of its own, as it would be, and watches meanwhile. What it returns must be JSON."""
    end, own = socket.socketpair()
    child = os.fork()
    if child == 0:
        result = {"failed": "it broke off"}
        try:
            result = work()
        except AssertionError as e:
            result = {"failed": str(e)}
        finally:
            own.sendall(json.dumps(result).encode())
            os._exit(0)
    own.close()
    end.settimeout(0.02)
    result = b""
    while not result:
        by.look()
        try:
            result = end.recv(65536)
        except TimeoutError:
            pass
    os.waitpid(child, 0)
    result = json.loads(result)
    assert "failed" not in result, result["failed"]
    return result


def parallel_512(by):
    """More at once than there are places: each is answered, or told why not."""
    result = beside(by, crowd_of_512)
    assert "result" in Talk().ask("status"), "no new connection afterwards"
    return result


def crowd_of_512():
    answered, refused = 0, 0
    talks = [Talk(greet=False) for _ in range(512)]
    for talk in talks:
        talk.send(HELLO + b'{"id": 2, "method": "status"}\n')
    for talk in talks:
        first = talk.line()
        if first and "result" in first:
            answered += "result" in (talk.line() or {})
        elif first:
            refused += is_typed(first, -32015) is not None
        talk.close()
    assert answered >= 64 and answered + refused == len(talks), f"{answered} answered, {refused} refused of {len(talks)}"
    return {"answered": answered, "told_to_come_again": refused}


def silent_crowd(by):
    """Connections that are held and say nothing lock nobody out, neither who is there nor who comes."""
    return beside(by, hold_700)


def hold_700():
    held = [Talk(greet=i % 2 == 0) for i in range(700)]
    newcomers, told = 0, 0
    for _ in range(20):
        child = os.fork()  # somebody else
        if child == 0:
            os._exit("result" not in (Talk().ask("status") or {}))
        newcomers += os.waitpid(child, 0)[1] == 0
    for talk in held:
        talk.s.setblocking(False)
        try:
            told += is_typed(talk.line(), -32015) is not None
        except BlockingIOError:
            pass
    assert newcomers == 20, f"{newcomers} of 20 newcomers were served"
    assert told > 0, "nobody was closed: there was no crowd"
    return {"newcomers": newcomers, "closed": told, "of": len(held)}


def never_reads(by):
    """Asks for ever and takes no answer: dropped, and in the meantime nobody waits for it."""
    readers = [Talk() for _ in range(8)]
    start = time.monotonic()
    many = b'{"id": 3, "method": "metrics", "params": {"describe": true}}\n' * 1000
    gone = set()
    for reader in readers:
        reader.s.setblocking(False)
    while len(gone) < len(readers) and time.monotonic() < start + 4 * STALL_S:
        for i, reader in enumerate(readers):
            try:
                reader.s.send(many)
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                gone.add(i)
        by.look()
        time.sleep(0.02)
    assert len(gone) == len(readers), f"{len(readers) - len(gone)} still have their connection"
    return f"{len(gone)} dropped after {time.monotonic() - start:.1f} s"


def wants_no_answer(by):
    """Asks for ever for what costs most, without ids: there is nothing to be dropped for, and nobody waits for it."""
    askers = [Talk() for _ in range(8)]
    many = b'{"jsonrpc": "2.0", "method": "metrics", "params": {"describe": true}}\n' * 1000
    rest = [many] * len(askers)
    done = 0
    end = time.monotonic() + STALL_S
    while time.monotonic() < end:
        for i, asker in enumerate(askers):
            asker.s.setblocking(False)
            try:
                n = asker.s.send(rest[i])
            except BlockingIOError:
                continue
            done += n
            rest[i] = rest[i][n:] or many
        by.look()
        time.sleep(0.02)
    assert done > 8 * LINE_MAX, f"only {done} bytes were taken"
    for i, asker in enumerate(askers):
        asker.s.settimeout(60)
        assert asker.send(rest[i]), "a connection was closed"
        assert asker.ask("version")["id"] == 7, "another answer than to what has an id"
        by.look()
    return f"{done} bytes of such were sent"


def connect_and_close(n=memoryview(bytearray(8)).cast("Q")):
    """As fast as it goes, until nobody listens or nobody is left who started it."""
    parent = os.getppid()
    while os.getppid() == parent:
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(PATH)
            except (ConnectionError, FileNotFoundError):
                return
        n[0] += 1


def flood(by):
    """Two, then more, who connect and close for ever: who is there is answered, and who comes."""
    done = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
    slowest, children = 0.0, []
    try:
        for n in (2, 6):
            while len(children) < n:
                child = os.fork()
                if child == 0:
                    connect_and_close(done[len(children):])
                    os._exit(0)
                children.append(child)
            for _ in range(20):
                start = time.monotonic()
                newcomer = Talk(timeout=SLOW_S)
                assert "result" in (newcomer.ask("status") or {}), "a newcomer was not served"
                newcomer.close()
                slowest = max(slowest, time.monotonic() - start)
                assert slowest < SLOW_S, f"a newcomer waited {slowest:.1f} s"
                by.look()
                time.sleep(0.05)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert all(n > 50 for n in done[:len(children)]), f"no flood: {list(done[:len(children)])}"
    return {"connections": sum(done), "slowest_newcomer_ms": round(slowest * 1000)}


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.argv[2] == "metrics":
        json.dump(Talk().ask("metrics")["result"], sys.stdout)
        return
    if sys.argv[2] == "connect_and_close":
        connect_and_close()
        return
    case = globals()[sys.argv[2]]
    by = Bystander()
    result = case(by)
    by.look()
    print(f"{sys.argv[2]}: {result}; a bystander was answered {by.n} times, at the slowest in {by.slowest * 1000:.0f} ms")


PATH = sys.argv[1] if len(sys.argv) == 3 else sys.exit("usage: control.py SOCKET CASE")
main()
