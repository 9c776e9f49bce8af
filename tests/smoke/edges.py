#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Objects at the edges of what is allowed, through librailyard: keys, sizes, budgets, stores that are full, and objects that change while they are read.

  edges.py LIBRARY SOCKET CASE [ARGUMENT...]    TAP; the daemons are those of edges.sh
"""
import ctypes
import json
import os
import random
import signal
import socket
import sys
import threading
import time

OK, BUDGET, STALE, NOT_FOUND, TOO_SMALL, EXISTS, NO_SPACE, UNKNOWN, DETACHED, INVALID = 0, 2, 8, 9, 10, 13, 14, 16, 21, 23
FAILED = (1, 3, 4, 5)  # NO_RAIL, TIMEOUT, CANCELLED, RAIL: of a writer that is gone
IF_ABSENT, FAILOVER = 1 << 1, 1 << 5
MIB = 1 << 20


class Attach(ctypes.Structure):
    _fields_ = [("socket_path", ctypes.c_char_p), ("read_arena_bytes", ctypes.c_uint64), ("put_arena_bytes", ctypes.c_uint64),
                ("ring_entries", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("timeout_ns", ctypes.c_uint64), ("spin_ns", ctypes.c_uint64),
                ("cause", ctypes.c_char_p), ("cause_bytes", ctypes.c_uint32), ("reserved2", ctypes.c_uint32)]


class PutOpts(ctypes.Structure):
    _fields_ = [("put_id", ctypes.c_uint64 * 2), ("ttl_ns", ctypes.c_uint64), ("deadline_ns", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64),
                ("stripe_bytes", ctypes.c_uint32), ("flags", ctypes.c_uint32)]


class PutResult(ctypes.Structure):
    _fields_ = [("put_id", ctypes.c_uint64 * 2), ("generation", ctypes.c_uint64), ("bytes", ctypes.c_uint64)]


class ReadOpts(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64), ("generation", ctypes.c_uint64), ("deadline_ns", ctypes.c_uint64),
                ("flags", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


class Client:
    """One attachment, for one thread."""

    lib = None

    def __init__(self, path, arena_bytes=0):
        self.handle = ctypes.c_void_p()
        opts = Attach(socket_path=os.fsencode(path), read_arena_bytes=arena_bytes, put_arena_bytes=arena_bytes)
        status = self.lib.ry_attach(ctypes.byref(opts), ctypes.byref(self.handle))
        if status:
            raise RuntimeError(f"attach: {status}")

    def __del__(self):
        self.lib.ry_detach(self.handle)

    def cause(self):
        return self.lib.ry_last_cause(self.handle).decode()

    def put(self, key, data, flags=0, ttl_ns=0, put_id=(0, 0)):
        opts = PutOpts(ttl_ns=ttl_ns, flags=flags, put_id=(ctypes.c_uint64 * 2)(*put_id))
        result = PutResult()
        status = self.lib.ry_put(self.handle, key, ctypes.c_uint16(len(key)), data, ctypes.c_uint64(len(data)), ctypes.byref(opts), ctypes.byref(result))
        return status, result

    def query(self, key, put_id):
        result = PutResult()
        status = self.lib.ry_put_query(self.handle, key, ctypes.c_uint16(len(key)), (ctypes.c_uint64 * 2)(*put_id), ctypes.c_uint64(0), ctypes.byref(result))
        return status, result

    def read(self, key, room, offset=0, length=(1 << 64) - 1, generation=0):
        """(status, bytes)."""
        # A host that is busy with other things may keep a rail waiting; that is not what is tried here.
        opts = ReadOpts(offset=offset, length=length, generation=generation, flags=FAILOVER)
        buffer, n = ctypes.create_string_buffer(max(room, 1)), ctypes.c_uint64()
        status = self.lib.ry_read_copy(self.handle, key, ctypes.c_uint16(len(key)), ctypes.byref(opts), buffer, ctypes.c_uint64(room), ctypes.byref(n), None)
        return status, ctypes.string_at(buffer, n.value) if not status else b""

    def keys(self, prefix=b""):
        found = []
        take = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint16, ctypes.c_uint64, ctypes.c_uint64)
        fn = take(lambda arg, key, n, size, generation: found.append(ctypes.string_at(key, n)) or True)
        status = self.lib.ry_list(self.handle, prefix, ctypes.c_uint16(len(prefix)), ctypes.c_uint64(0), fn, None)
        return status, found

    def ttl_ns(self, key):
        """What is left; 0 = it is not there."""
        found = (ctypes.c_uint64 * 8)()
        status = self.lib.ry_lookup(self.handle, key, ctypes.c_uint16(len(key)), ctypes.c_uint64(0), found)
        return 0 if status else found[3]

    def delete(self, key, generation=0):
        return self.lib.ry_delete(self.handle, key, ctypes.c_uint16(len(key)), ctypes.c_uint64(generation), ctypes.c_uint64(0), None)


n_checks = n_failed = 0


def check(what, is_good, *more):
    global n_checks, n_failed
    n_checks += 1
    n_failed += not is_good
    print(f"{'ok' if is_good else 'not ok'} {n_checks} - {what}", flush=True)
    if not is_good:
        print("#", *more, flush=True)


def status_of(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    f = s.makefile("rw")
    for method, params in (("hello", {"version": 1}), ("status", {})):
        f.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        f.flush()
        answer = json.loads(f.readline())
    s.close()
    return answer["result"]


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def content(seed, size):
    return random.Random(seed).randbytes(size)


def keys(path):
    c = Client(path)
    longest, binary = b"\xff" * 4096, bytes(range(1, 256)) + b"\x00\xc3\x28"
    check("a key of 4096 bytes", c.put(longest, b"long")[0] == OK and c.read(longest, 9) == (OK, b"long"), c.cause())
    check("a key that is no UTF-8, with NUL", c.put(binary, b"binary")[0] == OK and c.read(binary, 9) == (OK, b"binary"), c.cause())
    check("both are listed as they are", c.keys()[0] == OK and {longest, binary} <= set(c.keys()[1]))
    check("by a prefix that is no UTF-8", c.keys(b"\xff\xff") == (OK, [longest]), c.keys(b"\xff\xff"))
    for n in (0, 4097, 65535):
        for name, status in (("put", lambda k: c.put(k, b"x")[0]), ("get", lambda k: c.read(k, 9)[0]), ("delete", lambda k: c.delete(k))):
            got = status(b"k" * n)
            check(f"{name} with a key of {n} bytes is INVALID and says how long a key is", got == INVALID and "4096" in c.cause(), got, c.cause())
    check("one byte less is another key", c.read(longest[1:], 9)[0] == NOT_FOUND)
    check("missing is NOT_FOUND", c.read(b"none", 9)[0] == NOT_FOUND)
    check("empty is OK with no bytes", c.put(b"empty", b"")[0] == OK and c.read(b"empty", 9) == (OK, b""), c.cause())
    check("a range of an empty object is INVALID", c.read(b"empty", 9, 0, 1)[0] == INVALID, c.cause())
    check("one byte", c.put(b"one", b"\x80")[0] == OK and c.read(b"one", 1) == (OK, b"\x80"), c.cause())
    for key in (longest, binary, b"empty", b"one"):
        check("a delete", c.delete(key) == OK, c.cause())


def is_idle(path):
    inflight = status_of(path)["inflight"]
    return inflight["reads"] == 0 and inflight["bytes"] == 0


def in_mid_read(path, key, size, meddle):
    """Reads in another thread, meddles once bytes are in flight, and says (status, bytes, whether the read went on afterwards)."""
    client, out = Client(path), {}
    check("nothing is in flight before", wait_for(lambda: is_idle(path)))
    thread = threading.Thread(target=lambda: out.update(result=client.read(key, size)))
    thread.start()
    began = wait_for(lambda: status_of(path)["inflight"]["reads"] > 0 and status_of(path)["inflight"]["bytes"] > 0)
    meddle()
    went_on = thread.is_alive()
    thread.join(60)
    return *out.get("result", (None, b"")), began and went_on, client.cause()


def changes(path):
    c = Client(path)
    size = 40 * MIB
    old, new = content(1, size), content(2, MIB + 5)
    check("put", c.put(b"k", old)[0] == OK, c.cause())
    status, data, bites, cause = in_mid_read(path, b"k", size, lambda: check("overwrite in mid-read", c.put(b"k", new)[0] == OK, c.cause()))
    check("the read was still under way", bites)
    check("an overwritten object is read to its end, all of the old generation", status == OK and data == old, status, len(data), cause)
    check("the next read has the new one", c.read(b"k", size) == (OK, new), c.cause())
    check("put again", c.put(b"k", old)[0] == OK, c.cause())
    status, data, bites, cause = in_mid_read(path, b"k", size, lambda: check("delete in mid-read", c.delete(b"k") == OK, c.cause()))
    check("the read was still under way", bites)
    check("a deleted object is read to its end", status == OK and data == old, status, len(data), cause)
    check("the next read does not find it", c.read(b"k", size)[0] == NOT_FOUND)


def expiry(path):
    """Expiry needs no linger: what is read at that moment ends whole, or fails as a whole."""
    c = Client(path)
    size = 40 * MIB
    data = content(9, size)
    check("put with a time to live", c.put(b"short", data, ttl_ns=1_500_000_000)[0] == OK, c.cause())
    check("there is little of it left", wait_for(lambda: c.ttl_ns(b"short") < 150_000_000))
    left_ns, began = c.ttl_ns(b"short"), time.monotonic_ns()
    status, got = c.read(b"short", size)
    check("it expired in mid-read", 0 < left_ns < time.monotonic_ns() - began, left_ns)
    check("the read ended whole, or failed as a whole", (status == OK and got == data) or (status in (STALE, NOT_FOUND) and not got), status, len(got))
    check("and says what to do", status == OK or "expired" in c.cause() or "no such object" in c.cause(), c.cause())
    check("then it is NOT_FOUND", wait_for(lambda: c.read(b"short", size)[0] == NOT_FOUND))
    print(f"# the read ended with {status}")


def writers(path, rounds=40):
    n_good = n_exact = 0
    for i in range(rounds):
        gate, out = threading.Barrier(2), {}

        def body(me):
            c = Client(path, MIB)
            data = content(i * 2 + me, 100_000 + me)
            gate.wait()
            out[me] = c.put(f"race/{i}".encode(), data, flags=IF_ABSENT)[0], data

        threads = [threading.Thread(target=body, args=(me,)) for me in (0, 1)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        won = [data for status, data in out.values() if status == OK]
        n_good += sorted(status for status, _ in out.values()) == [OK, EXISTS]
        n_exact += len(won) == 1 and Client(path, MIB).read(f"race/{i}".encode(), 200_000) == (OK, won[0])
    check(f"of two writers with put-if-absent one wins, {rounds} times", n_good == rounds, n_good)
    check("and the object is the winner's", n_exact == rounds, n_exact)


def small_budget(path):
    c = Client(path)
    data = content(3, 12 * MIB)
    check("put more than the budgets", c.put(b"large", data)[0] == OK, c.cause())
    status, _ = c.read(b"large", 12 * MIB)
    check("a read larger than its budget is BUDGET with both numbers", status == BUDGET and str(12 * MIB) in c.cause() and str(8 * MIB) in c.cause(), status, c.cause())
    check("a range that fits is read", c.read(b"large", 4 * MIB, 4 * MIB + 1, 4 * MIB - 1) == (OK, data[4 * MIB + 1 : 8 * MIB]), c.cause())


def small_arena(path):
    c = Client(path)
    data = content(4, 20 * MIB)
    check("put more than the arenas", c.put(b"large", data)[0] == OK, c.cause())
    status, _ = c.read(b"large", 20 * MIB)
    check("a read larger than the arena is BUFFER_TOO_SMALL with both numbers", status == TOO_SMALL and str(16 * MIB) in c.cause() and str(20 * MIB) in c.cause(), status, c.cause())
    check("a buffer that is too small is told, too", c.read(b"large", 5, 0, 6)[0] == TOO_SMALL, c.cause())
    check("a range that fits is read", c.read(b"large", MIB, 20 * MIB - 5, 5) == (OK, data[-5:]), c.cause())
    check("delete", c.delete(b"large") == OK, c.cause())


def full(path, tier):
    c = Client(path)
    a, b = content(5, 14 * MIB), content(6, 14 * MIB)
    check("the first object has room", c.put(b"a", a)[0] == OK, c.cause())
    status = c.put(b"b", b)[0]
    if tier == "pinned":
        check("the second does not: NO_SPACE, and what to do", status == NO_SPACE and "delete" in c.cause(), status, c.cause())
        check("the first is still there", c.read(b"a", 14 * MIB) == (OK, a), c.cause())
        check("the second is not, not even in part", c.read(b"b", 14 * MIB)[0] == NOT_FOUND)
        check("after a delete it has room", c.delete(b"a") == OK and wait_for(lambda: c.put(b"b", b)[0] == OK), c.cause())
    else:
        check("the second pushes it out", status == OK, status, c.cause())
        check("what was pushed out is NOT_FOUND", c.read(b"a", 14 * MIB)[0] == NOT_FOUND, c.cause())
    check("the second is whole", c.read(b"b", 14 * MIB) == (OK, b), c.cause())
    status = c.put(b"c", content(7, 30 * MIB))[0]
    check("an object larger than the store is NO_SPACE", status == NO_SPACE, status, c.cause())
    check("and pushes nobody out", c.read(b"b", 14 * MIB) == (OK, b), c.cause())
    check("delete", c.delete(b"b") == OK, c.cause())


def lost_begin(path, pid, out, delay):
    """Kills the reader's daemon while a put is under way."""
    put_id, data = (random.getrandbits(64), random.getrandbits(64) | 1), content(8, 20 * MIB)
    result, client = {}, Client(path)

    def body():
        result["status"] = client.put(b"lost", data, put_id=put_id)[0]

    thread = threading.Thread(target=body)
    thread.start()
    time.sleep(float(delay))
    os.kill(int(pid), signal.SIGKILL)
    thread.join(60)
    check("a put whose daemon died is DETACHED, UNKNOWN_OUTCOME or was done", result.get("status") in (OK, DETACHED, UNKNOWN), result)
    if float(delay) < 0.005:
        check("this early it cannot be done", result.get("status") != OK, result)
    print(f"# it ended with {result.get('status')}")
    with open(out, "w") as f:
        json.dump({"put_id": put_id, "status": result.get("status")}, f)


def lost_end(path, out):
    """Whatever became of it: the put id tells, and nothing is done twice."""
    with open(out) as f:
        known = json.load(f)
    c, data, put_id = Client(path), content(8, 20 * MIB), known["put_id"]
    status, asked = c.query(b"lost", put_id)
    was_done = status == OK and asked.generation != 0
    check("its outcome can be asked by its put id", status in (OK, NOT_FOUND, *FAILED) and (was_done or known["status"] != OK), status, c.cause())
    check("what was not done is not there, not even in part", was_done or c.read(b"lost", 20 * MIB)[0] == NOT_FOUND, status)
    print(f"# asked, it is {status}, generation {asked.generation}")
    status, first = c.put(b"lost", data, put_id=put_id)
    if status in FAILED:  # the outcome of this id is settled
        check("the same put again has the outcome of the first", c.query(b"lost", put_id)[0] == status, status, c.cause())
        put_id = (put_id[0], put_id[1] ^ 2)
        status, first = c.put(b"lost", data, put_id=put_id)
    check("put again it succeeds", status == OK and first.generation, status, c.cause())
    check("and was done once", not was_done or asked.generation == first.generation, asked.generation, first.generation)
    status, again = c.put(b"lost", data, put_id=put_id)
    check("once more changes nothing", status == OK and again.generation == first.generation, status, again.generation)
    check("the object is whole", c.read(b"lost", 20 * MIB) == (OK, data), c.cause())
    check("delete", c.delete(b"lost") == OK, c.cause())


def far_end(path, name):
    """Ranges around every power of two of a sparse file that was put."""
    c, size = Client(path), os.path.getsize(name)
    wrong = []
    with open(name, "rb") as f:
        for at in (0, (1 << 31) - 3, (1 << 32) - 3, size - 70_000, size - 1):
            n = min(65_537 if at < size - 70_000 else 70_000, size - at)
            if at >= size or n <= 0:
                continue
            f.seek(at)
            status, data = c.read(b"huge", n, at, n)
            if status or data != f.read(n):
                wrong.append((at, n, status, c.cause()))
    check(f"{size} bytes: ranges around 2^31, 2^32 and the end are exact", not wrong, wrong)
    check("a range behind the end is INVALID", c.read(b"huge", 2, size, 1)[0] == INVALID and c.read(b"huge", 2, size - 1, 2)[0] == INVALID, c.cause())


def main():
    library, path, case, *more = sys.argv[1:]
    Client.lib = ctypes.CDLL(library)
    Client.lib.ry_last_cause.restype = ctypes.c_char_p
    Client.lib.ry_last_cause.argtypes = [ctypes.c_void_p]
    cases = {f.__name__: f for f in (keys, changes, expiry, writers, small_budget, small_arena, full, lost_begin, lost_end, far_end)}
    cases[case](path, *more)
    print(f"1..{n_checks}")
    return 1 if n_failed else 0


sys.exit(main())
