#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A client of the recorded ABI: it speaks to a daemon with the offsets of baseline.txt and none of today's headers.

  ring_client.py SOCKET KEY FILE    reads KEY whole through the shared ring and compares it with FILE; TAP
"""
import json
import mmap
import os
import re
import socket
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WAIT_S = 20


class Recorded:
    """Offsets, sizes and values by name."""

    def __init__(self):
        self.fields, self.sizes, self.values = {}, {}, {}
        with open(os.path.join(HERE, "baseline.txt")) as f:
            for line in f:
                if m := re.match(r"\S+ field (\S+) offset (\d+) size (\d+)", line):
                    self.fields[m[1]] = int(m[2]), int(m[3])
                elif m := re.match(r"\S+ struct (\S+) size (\d+)", line):
                    self.sizes[m[1]] = int(m[2])
                elif m := re.match(r"\S+ (?:enum \S+|constant) (\S+) (\d+)", line):
                    self.values[m[1]] = int(m[2])

    def get(self, memory, base, field):
        at, size = self.fields[field]
        return int.from_bytes(memory[base + at : base + at + size], "little")

    def put(self, memory, base, field, value):
        at, size = self.fields[field]
        memory[base + at : base + at + size] = value.to_bytes(size, "little")


R = Recorded()


class Control:
    """The control socket: one JSON line each way, descriptors with the first byte of an answer."""

    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX)
        self.s.settimeout(WAIT_S)
        self.s.connect(path)

    def call(self, method, **params):
        self.s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
        line, fds = b"", []
        while not line.endswith(b"\n"):
            data, found, _, _ = socket.recv_fds(self.s, 65536, 16)
            if not data:
                raise EOFError("the daemon closed the connection")
            line, fds = line + data, fds + list(found)
        return json.loads(line), fds


class Client:
    def __init__(self, path):
        self.control = Control(path)
        self.control.call("hello", version=1)
        self.answer, fds = self.control.call("attach", abi_major=R.values["RY_RING_ABI_MAJOR"], abi_minor=R.values["RY_RING_ABI_MINOR"],
                                             read_arena_bytes=16 << 20, put_arena_bytes=1 << 20, ring_entries=8)
        ring_fd, read_fd, _, self.daemon_event, self.own_event = fds
        self.ring = mmap.mmap(ring_fd, os.fstat(ring_fd).st_size)
        self.arena = mmap.mmap(read_fd, os.fstat(read_fd).st_size, prot=mmap.PROT_READ)
        for name in ("magic", "abi_major", "abi_minor", "total_bytes", "n_entries", "sq_index_offset", "cq_index_offset", "sq_offset", "cq_offset",
                     "slot_offset", "slot_bytes", "read_arena_bytes"):
            setattr(self, name, R.get(self.ring, 0, "ry_ring_header." + name))
        self.ticket = 0

    def submit(self, op, key=b"", **fields):
        """Slot 0 each time: one operation after the other."""
        tail = R.get(self.ring, self.sq_index_offset, "ry_ring_index.tail")
        sqe = self.sq_offset + (tail % self.n_entries) * R.sizes["ry_sqe"]
        self.ring[sqe : sqe + R.sizes["ry_sqe"]] = bytes(R.sizes["ry_sqe"])
        at = self.slot_offset + R.fields["ry_slot.key"][0]
        self.ring[at : at + len(key)] = key
        self.ticket += 1
        for name, value in {"ticket": self.ticket, "op": R.values[op], "key_bytes": len(key), **fields}.items():
            R.put(self.ring, sqe, "ry_sqe." + name, value)
        R.put(self.ring, self.sq_index_offset, "ry_ring_index.tail", (tail + 1) & 0xFFFFFFFF)
        os.write(self.daemon_event, struct.pack("<Q", 1))

    def complete(self):
        """The next completion as a dictionary."""
        head = R.get(self.ring, self.cq_index_offset, "ry_ring_index.head")
        end = time.monotonic() + WAIT_S
        while R.get(self.ring, self.cq_index_offset, "ry_ring_index.tail") == head:
            if time.monotonic() > end:
                raise TimeoutError("no completion")
            time.sleep(0.001)
        cqe = self.cq_offset + (head % self.n_entries) * R.sizes["ry_cqe"]
        out = {f.split(".")[1]: R.get(self.ring, cqe, f) for f in R.fields if f.startswith("ry_cqe.")}
        R.put(self.ring, self.cq_index_offset, "ry_ring_index.head", (head + 1) & 0xFFFFFFFF)
        return out

    def slot(self, field):
        return R.get(self.ring, self.slot_offset, "ry_slot." + field)

    def lease(self):
        at, data = self.slot_offset + R.fields["ry_slot.extents"][0], b""
        for i in range(self.slot("n_extents")):
            extent = at + i * R.sizes["ry_extent"]
            offset, n = R.get(self.ring, extent, "ry_extent.offset"), R.get(self.ring, extent, "ry_extent.bytes")
            data += self.arena[offset : offset + n]
        return data


n_checks = n_failed = 0


def check(what, is_good, *more):
    global n_checks, n_failed
    n_checks += 1
    n_failed += not is_good
    print(f"{'ok' if is_good else 'not ok'} {n_checks} - {what}")
    if not is_good and more:
        print("#", *more)


def refused(path, what, status, *words, hello=1, **versions):
    control = Control(path)
    answer, fds = control.call("hello", version=hello)
    if "error" not in answer:
        answer, fds = control.call("attach", **versions)
    error = answer.get("error", {})
    check(what, error.get("data", {}).get("status") == status and all(w in error.get("message", "") for w in words) and not fds, answer)


def versions(path):
    major = R.values["RY_RING_ABI_MAJOR"]
    refused(path, "a client of the next major version is refused", "VERSION", "major version", "upgrade the older side", abi_major=major + 1, abi_minor=0)
    refused(path, "a client of the major version before is refused", "VERSION", "upgrade the older side", abi_major=major - 1, abi_minor=9)
    refused(path, "another control protocol is refused", "VERSION", "upgrade the older side", hello=2)
    control = Control(path)
    control.call("hello", version=1)
    answer, fds = control.call("attach", abi_major=major, abi_minor=999, read_arena_bytes=1 << 20, put_arena_bytes=1 << 20, ring_entries=2)
    check("a client of a later minor version is served", len(fds) == 5, answer)
    if len(fds) == 5:
        ring = mmap.mmap(fds[0], os.fstat(fds[0]).st_size)
        check("and the smaller minor version is spoken", R.get(ring, 0, "ry_ring_header.abi_minor") < 999)


def reads(path, key, content):
    c = Client(path)
    check("the ring of the recorded ABI is handed out", c.magic == R.values["RY_RING_MAGIC"] and c.abi_major == R.values["RY_RING_ABI_MAJOR"], c.answer)
    check("its slots are as large as recorded, or larger", c.slot_bytes >= R.sizes["ry_slot"] and c.slot_bytes % 64 == 0, c.slot_bytes)
    c.submit("RY_OP_LOOKUP", key)
    done = c.complete()
    size = R.get(c.ring, c.slot_offset + R.fields["ry_slot.object"][0], "ry_object.size_bytes")
    check("a look-up finds the object", done["status"] == 0 and size == len(content), done, size)
    c.submit("RY_OP_READ", key, length=(1 << 64) - 1)
    done = c.complete()
    check("a read succeeds, verified", done["status"] == 0 and done["is_verified"] == 1 and done["ticket"] == c.ticket, done)
    check("byte for byte", done["bytes"] == len(content) and c.lease() == content)
    stats = c.slot_offset + R.fields["ry_slot.stats"][0]
    check("its statistics are where they were", R.get(c.ring, stats, "ry_read_stats.wire_bytes") >= len(content) and
          1 <= R.get(c.ring, stats, "ry_read_stats.n_rails") <= R.values["RY_RAILS_MAX"])
    c.submit("RY_OP_RELEASE", arg=done["lease_id"])
    c.submit("RY_OP_DELETE", key, arg=done["generation"] + 1)
    done = c.complete()
    check("a delete of another generation is refused", done["status"] == R.values["RY_ERR_STALE_GENERATION"], done)
    cause = c.ring[c.slot_offset + R.fields["ry_slot.cause"][0] :][:160].split(b"\0")[0].decode()
    check("and its cause speaks of the delete", "delete" in cause and "read" not in cause, cause)
    c.submit("RY_OP_READ", b"no such key", length=1)
    done = c.complete()
    check("a missing key is NOT_FOUND", done["status"] == R.values["RY_ERR_NOT_FOUND"], done)


def main():
    path, key, name = sys.argv[1:4]
    with open(name, "rb") as f:
        content = f.read()
    versions(path)
    reads(path, os.fsencode(key), content)
    print(f"1..{n_checks}")
    return 1 if n_failed else 0


sys.exit(main())
