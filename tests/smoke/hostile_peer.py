# SPDX-License-Identifier: BSD-3-Clause
"""Peers that mean harm, on real sockets: a store that lies (`store`), and readers that attack a store (`attack PORT WHAT ENOUGH`);
and what a daemon counts (`metrics SOCKET`).

The lying store takes the first word of a key as what it shall do, prints its port, and then each request that it got, one a line.
An attack prints what it did, and fails where the store under attack does not bear it: `refused`, `closed` or `answered` are as
docs/wire.md says.
"""

import ctypes
import json
import os
import random
import socket
import struct
import sys
import threading
import time

MAGIC = 0x64726179
HELLO = struct.Struct("<IHHHHHHQQQIHHIHHII32s32s32s32s")
META = struct.Struct("<IHHIIQ")
MSG = struct.Struct("<BBHIQ")
FRAME = struct.Struct("<IB3xIIQ")
STRIPE = 65536
N_STRIPES = 3
LOOKUP, LOOKUP_REPLY, PUT, PUT_DONE, ERROR, READY, BYE, KEEPALIVE, KEEPALIVE_REPLY = 1, 2, 3, 4, 10, 11, 12, 13, 14
READ, PULL, DONE, CANCEL, BUSY, PING, PONG, GRANT, PULLED = range(1, 10)
DATA_KIND = 2
OK = 0


def pattern(n):
    x, out = 0x9E3779B97F4A7C15, bytearray()
    for _ in range(n):
        x = (x * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        out.append(x >> 56)
    return bytes(out)


# No two stripes are alike: each is turned a little further.
OBJECT = b"".join(p[i:] + p[:i] for i in range(N_STRIPES) for p in (pattern(STRIPE),))


def checksums():
    lib = ctypes.CDLL("libxxhash.so.0")
    lib.XXH3_64bits.restype = ctypes.c_uint64
    lib.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return [lib.XXH3_64bits(OBJECT[i * STRIPE : (i + 1) * STRIPE], STRIPE) for i in range(N_STRIPES)]


def hello(kind=1, token=0, **other):
    f = dict(magic=MAGIC, major=1, minor=0, kind=kind, transport=1, rail=0, qp=0, node=0xE7, incarnation=os.getpid(), token=token,
             features=0, n_qps=1, credits=24, msg=1024, parts=8, reserved0=0, data=262144, status=0, name=b"evil", rail_name=b"x0",
             challenge=b"", reserved=b"")
    f.update(other)
    return HELLO.pack(*f.values())


def meta(kind, body=b"", request_id=0, status=0, flags=0):
    return META.pack(META.size - 4 + len(body), kind, 0, status, flags, request_id) + body


def message(kind, body=b"", request_id=0):
    m = MSG.pack(kind, 0, MSG.size + len(body), 0, request_id) + body
    return FRAME.pack(len(m), 1, 0, 0, 0) + m


def data(key, offset, bytes_):
    return FRAME.pack(len(bytes_), 2, key, 0, offset) + bytes_


def done(request_id, status=OK, credits=1, generation=1, n=0):
    return message(DONE, struct.pack("<IIQQQQ", status, credits, generation, n, 0, 0), request_id)


def read_of(request_id, handle, generation, key=0x101, parts=((0, 100, 0, 0),), kind=READ, ttl_us=10**6):
    body = struct.pack("<QQIIH6x", handle, generation, ttl_us, key, len(parts))
    return message(kind, body + b"".join(struct.pack("<IIQQ", *p) for p in parts), request_id)


def lookup_of(key, request_id=1):
    return meta(LOOKUP, struct.pack("<IHH", 0, len(key), 0) + key, request_id)


def take(s, n):
    got = b""
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            raise EOFError
        got += more
    return got


def take_meta(s):
    head = META.unpack(take(s, META.size))
    return head, take(s, head[0] + 4 - META.size)


# ---- the store that lies ----


class Store:
    def __init__(self):
        self.sums = checksums()
        self.pairs = {}  # token -> bootstrap socket
        self.handles = [""]  # of what to do; a handle is its place
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        say(self.listener.getsockname()[1])
        while True:
            s, _ = self.listener.accept()
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        try:
            h = HELLO.unpack(take(s, HELLO.size))
            if h[3] == DATA_KIND:
                s.sendall(hello(DATA_KIND, h[9]))
                self.pairs[h[9]].sendall(meta(READY))
                DataSocket(self, s).run()
            else:
                token = random.getrandbits(63) | 1
                self.pairs[token] = s
                s.sendall(hello(1, token))
                self.bootstrap(s)
        except (EOFError, OSError):
            pass
        finally:
            s.close()

    def bootstrap(self, s):
        while True:
            head, body = take_meta(s)
            kind, request_id = head[1], head[5]
            if kind == KEEPALIVE:
                s.sendall(meta(KEEPALIVE_REPLY, request_id=request_id))
            elif kind == LOOKUP:
                first, n = struct.unpack_from("<IH", body)
                self.lookup(s, body[8 : 8 + n].decode(), request_id, first)

    def handle_of(self, what):
        with self.lock:
            if what not in self.handles:
                self.handles.append(what)
            return self.handles.index(what)

    def reply(self, request_id, handle, **other):
        f = dict(handle=handle, generation=1, etag=9, layout=1, size=len(OBJECT), ttl=0, stripe=STRIPE, count=N_STRIPES, first=0,
                 n=N_STRIPES, has=1)
        f.update(other)
        return meta(LOOKUP_REPLY, struct.pack("<QQQQQQIIIIB7x", *f.values()) + struct.pack(f"<{f['n']}Q", *self.sums[: f["n"]]), request_id)

    def lookup(self, s, key, request_id, first):
        what = key.split(".")[0]
        handle = self.handle_of(what)
        say("lookup", what)
        good = self.reply(request_id, handle)
        if what == "mute":
            return
        answers = {
            "malformed": good[:4] + b"\x02\x00\x01\x00" + good[8:],
            "huge": self.reply(request_id, handle, size=2**63),
            "crowded": self.reply(request_id, handle, size=2**40, count=2**24, stripe=STRIPE, n=1),
            "unhashed": self.reply(request_id, handle, n=0, has=0),
            "another": meta(PUT_DONE, bytes(200), request_id),
            "pages": self.reply(request_id, handle, first=0 if not first else 1, n=1, generation=random.getrandbits(60)),
            "oversized": struct.pack("<I", 2**31) + good[4:],
            "noise": random.Random(7).randbytes(4096),
            "echoes": b"".join(self.reply(i << 32 | i % 7, handle) for i in range(3000)) + good + good,
        }
        s.sendall(answers.get(what, good))


class DataSocket:
    def __init__(self, store, s):
        self.store, self.s = store, s
        self.kept = {}  # request id -> READ that was not answered

    def run(self):
        while True:
            n, kind, _, _, _ = FRAME.unpack(take(self.s, FRAME.size))
            body = take(self.s, n)
            if kind == 1:
                self.message(body)

    def message(self, m):
        kind, _, _, _, request_id = MSG.unpack_from(m)
        if kind == PING:
            key, n, offset = struct.unpack_from("<IIQ", m, 16)
            self.s.sendall(data(key, offset, pattern(n)) + message(PONG, request_id=request_id))
        elif kind == CANCEL:
            say("cancel", self.kept.get(request_id, ("?",))[0])
            if request_id in self.kept:
                threading.Timer(0.4, self.late, (request_id,)).start()
        elif kind == READ:
            handle, generation, _, key, n_parts = struct.unpack_from("<QQIIH", m, 16)
            parts = [struct.unpack_from("<IIQQ", m, 48 + 24 * i) for i in range(n_parts)]
            what = self.store.handles[handle]
            say("read", what)
            self.read(what, request_id, generation, key, parts)

    # What a store that ignores CANCEL and ttl does in the end.
    def late(self, request_id):
        what, key, parts = self.kept.pop(request_id)
        try:
            self.s.sendall(self.payload(key, parts, b"\xee") + done(request_id, n=sum(p[1] for p in parts)))
            say("late", what)
        except OSError:
            say("late", "refused")

    def payload(self, key, parts, flip=None, turn=0):
        out = b""
        for stripe, n, offset, window in parts:
            bytes_ = OBJECT[(stripe + turn) % N_STRIPES * STRIPE + offset :][:n]
            out += data(key, window, flip * n if flip else bytes_)
        return out

    def read(self, what, request_id, generation, key, parts):
        n = sum(p[1] for p in parts)
        good = self.payload(key, parts) + done(request_id, generation=generation, n=n)
        answers = {
            "twice": good + done(request_id, generation=generation, n=n) * 3,
            "strange": b"".join(done(request_id ^ (i << 8), generation=generation, n=n, credits=0) for i in range(1, 200)) + good,
            "fewer": self.payload(key, parts) + done(request_id, generation=generation, n=n - 1),
            "more": self.payload(key, parts) + done(request_id, generation=generation, n=n + 1),
            "older": self.payload(key, parts) + done(request_id, generation=generation - 1, n=n),
            "empty": done(request_id, generation=generation, n=n),
            "wrong": self.payload(key, parts, b"\x5a") + done(request_id, generation=generation, n=n),
            "swapped": self.payload(key, parts, turn=1) + done(request_id, generation=generation, n=n),
            "credits": self.payload(key, parts) + done(request_id, generation=generation, n=n, credits=2**32 - 1),
            "status": done(request_id, status=9999),
            "busy": message(BUSY, struct.pack("<II", 0, 1), request_id),
            "patient": message(BUSY, struct.pack("<II", 2**32 - 1, 1), request_id),
            "frame": FRAME.pack(24, 9, 0, 0, 0),
            "large": FRAME.pack(2**31, 2, key, 0, 0),
            "zero": FRAME.pack(0, 1, 0, 0, 0),
            "outside": data(key, 2**30 - 4096, bytes(4096)) + data(key ^ 0x100, 0, bytes(4096)) + data(77, 0, bytes(4096)) + good,
            "asking": b"".join(read_of(i, 12345 + i, 1) for i in range(100)) + good,
            "granting": message(GRANT, struct.pack("<IIQQ", 1, 2, generation, n), request_id) + good,
            "noise": random.Random(8).randbytes(3000),
        }
        self.kept[request_id] = (what, key, parts)
        if what in ("silent", "deaf"):
            return
        if what != "busy":
            self.kept.pop(request_id)
        if what == "cut":
            self.s.sendall(good[: len(good) // 2])
            raise EOFError
        self.s.sendall(answers.get(what, good))


print_lock = threading.Lock()


def say(*words):
    with print_lock:
        print(*words, flush=True)


# ---- readers that attack ----


class Peer:
    """A pair with the store under attack; it has an identity of its own."""

    def __init__(self, port, node, state="up"):
        self.port = port
        self.node = node
        self.boot = self.connect()
        self.data = None
        if state == "new":
            return
        self.boot.sendall(hello(node=node, name=b"evil%d" % (node % 1000)))
        answer = HELLO.unpack(take(self.boot, HELLO.size))
        if answer[17]:
            raise ConnectionError(f"refused with {answer[17]}")
        self.token = answer[9]
        if state == "greeted":
            return
        self.data = self.connect()
        self.data.sendall(hello(DATA_KIND, self.token, node=node))
        take(self.data, HELLO.size)
        if state == "joined":
            return
        take_meta(self.boot)
        self.boot.sendall(meta(READY))

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def close(self):
        for s in (self.boot, self.data):
            if s:
                s.close()

    def lookup(self, key):
        self.boot.sendall(lookup_of(key))
        while True:
            head, body = take_meta(self.boot)
            if head[1] == LOOKUP_REPLY:
                return struct.unpack_from("<QQ", body)
            if head[1] == ERROR:
                raise ConnectionError(f"lookup: {head[3]}")


def push(s, bytes_):
    """Sends what the other side takes; a close or a reset is an answer, too."""
    try:
        s.settimeout(5)
        s.sendall(bytes_)
        return True
    except OSError:
        return False


def is_closed(s, seconds=10):
    """Reads until the end; false where it does not come."""
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def attack_garbage(port):
    rng = random.Random(11)
    for i in range(120):
        p = Peer(port, 5000 + i, ("new", "greeted", "joined", "up")[i % 4])
        s = p.data if p.data and i % 8 > 3 else p.boot
        push(s, rng.randbytes(rng.randrange(200, 4000)))
        assert is_closed(s), f"garbage in state {i % 4} is borne"
        p.close()


def attack_hellos(port):
    fields = {"major": 2, "kind": 7, "transport": 9, "rail": 99, "n_qps": 0, "credits": 0, "msg": 1, "parts": 0, "data": 0, "status": 99,
              "reserved0": 1, "reserved": b"x", "name": b"a\nb", "rail_name": b"\x1b[2J"}
    for name, value in fields.items():
        s = socket.create_connection(("127.0.0.1", port), timeout=10)
        s.sendall(hello(**{name: value}))
        try:
            answer = HELLO.unpack(take(s, HELLO.size))
            assert name == "status" or answer[17], f"{name}={value} is accepted"
        except EOFError:
            pass
        s.close()
    s = socket.create_connection(("127.0.0.1", port), timeout=10)
    s.sendall(hello(n_qps=65535, credits=65535, parts=65535, msg=2**32 - 1, data=2**32 - 1, features=2**32 - 1))
    assert HELLO.unpack(take(s, HELLO.size))[11] <= 8, "absurd limits are not cut"
    s.close()


def attack_connects(port):
    """A thousand a second and more for three seconds, as far as this host can; says how many, and how many a second."""
    end, n = time.monotonic() + 3, 0
    while time.monotonic() < end:
        s = socket.socket()
        s.setblocking(False)
        s.bind(("127.0.0.%d" % (2 + n % 200), 0))
        s.connect_ex(("127.0.0.1", port))
        if n % 3 == 1:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        n += 1
    say("connects", n, n // 3)


def attack_loris(port):
    """HELLO byte by byte, and metadata byte by byte on pairs that are up."""
    ups = [Peer(port, 6000 + i) for i in range(8)]
    slow = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(60)]
    for i in range(30):
        for s in slow:
            push(s, hello()[i : i + 1])
        for p in ups:
            push(p.boot, lookup_of(b"k" * 3000)[i : i + 1])
        time.sleep(0.1)
    assert all(is_closed(s) for s in slow), "a HELLO may take for ever"
    for s in slow + ups:
        s.close()


def attack_requests(port):
    """More READs than credits, none of whose answers are read."""
    p = Peer(port, 7001)
    handle, generation = p.lookup(b"big")
    part = ((0, 65536, 0, 0),)
    n = 0
    while n < 20000 and push(p.data, b"".join(read_of(n + i, handle, generation, parts=part) for i in range(100))):
        n += 100
    say("#", n, "READs were taken")
    p.close()


def attack_replay(port):
    """The same request, unasked answers, unknown handles, parts outside, probes of a wrong length."""
    p = Peer(port, 7002)
    handle, generation = p.lookup(b"big")
    burst = read_of(1, handle, generation) * 20
    burst += b"".join(done(i, n=100) for i in range(500)) + message(CANCEL, request_id=99) * 2000
    burst += message(BUSY, struct.pack("<II", 0, 10**6), 5) + message(PULLED, struct.pack("<II", 3, 0), 9)
    burst += message(GRANT, struct.pack("<IIQQ", 1, 2, 3, 4), 5) + message(PONG, request_id=4) * 50
    burst += message(PING, struct.pack("<IIQQII", 5, 100, 0, 0, 0, 0), 8) * 20
    burst += read_of(2, handle + 999, generation) + read_of(3, handle, generation + 999)
    burst += read_of(4, handle, generation, parts=((60000, 4096, 0, 0),)) + read_of(5, handle, generation, kind=PULL)
    assert push(p.data, burst), "it was cut off"
    got = {}
    p.data.settimeout(5)
    while not {2, 3, 4} <= got.keys():
        n, kind, _, _, _ = FRAME.unpack(take(p.data, FRAME.size))
        body = take(p.data, n)
        if kind == 1 and body[0] == DONE:
            got[MSG.unpack_from(body)[4]] = struct.unpack_from("<I", body, 16)[0]
    assert got[2] and got[3] and got[4], f"what does not exist is served: {got}"
    p.close()


def attack_metadata(port):
    """Lookups whose answers are not read, puts that nobody gives, half messages, replayed READY."""
    p = Peer(port, 7003)
    for i in range(300):
        if not push(p.boot, lookup_of(b"k%d" % i, i) * 20):
            break
    p.close()
    p = Peer(port, 7004)
    for i in range(64):
        fixed = struct.pack("<QQQQQQQIIIHH", i, 1, STRIPE, 0, 4711, 1, STRIPE, STRIPE, 0, 1, 1, 0)
        push(p.boot, meta(PUT, fixed + b"p" + bytes(7) + bytes(8), i, flags=3))
    time.sleep(0.5)
    p.close()
    p = Peer(port, 7005)
    push(p.boot, meta(READY))
    assert is_closed(p.boot), "READY twice is borne"
    p.close()
    p = Peer(port, 7006)
    push(p.boot, struct.pack("<I", 2**31) + bytes(20))
    assert is_closed(p.boot), "a length of 2 GiB is borne"
    p.close()
    p = Peer(port, 7007)
    push(p.boot, struct.pack("<IHHIIQ", 1 << 20, PUT, 0, 0, 0, 77) + bytes((1 << 20) + 4 - META.size))
    head, _ = take_meta(p.boot)
    assert head[1] == ERROR and head[5] == 77, "a message of 1 MiB is not refused"
    p.close()


def attack(port, name, enough):
    """For 3 s, and until the file `enough` is there."""
    end = time.monotonic() + 3
    while True:
        globals()["attack_" + name](port)
        if time.monotonic() >= end and os.path.exists(enough):
            break
    say("bore", name)


def metrics(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    f = s.makefile("rw")
    for method, params in (("hello", {"version": 1}), ("metrics", {})):
        f.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        f.flush()
        answer = json.loads(f.readline())
    print(json.dumps(answer["result"]))


if __name__ == "__main__":
    if sys.argv[1] == "store":
        Store()
    elif sys.argv[1] == "metrics":
        metrics(sys.argv[2])
    else:
        attack(int(sys.argv[2]), sys.argv[3], sys.argv[4])
