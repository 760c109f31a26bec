"""Recorded requests of versions that appear: `warmup/` is read, scored and compared before a version is published.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import os
import socket
import struct

from harness import modelfiles
from harness.small import stamp_files
from attacks.common import REGISTERED, Attack, varint
from attacks.models import appears, hole
from attacks.requests import HUGE, dense

HEAD = b"ULFREC\0\1"


def _socket(path):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path)


def _header(size):
    return b"UREC" + struct.pack("<IQ", size, 0)


def _with_hole(data):
    def make(path):
        modelfiles.write(path, data)
        os.truncate(path, 1 << 40)
    return make


def _record(request=b"", more=b""):
    """A record of the native API, whose other fields are `more`."""
    return b"\x08\x01\x12\x05stamp\x4a" + varint(len(request)) + request + more


def _version(folder, name, make):
    modelfiles.write_version(folder, stamp_files(1), success=False)
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if callable(make):
        make(path)
    else:
        modelfiles.write(path, make)


def _many(path):
    os.makedirs(path)
    for i in range(50_000):
        modelfiles.write(os.path.join(path, f"{i}.pb"), b"")


FILES = {
    "the folder is a FIFO": ("warmup", os.mkfifo), "the folder is a socket": ("warmup", _socket),
    "the folder is a link out": ("warmup", functools.partial(os.symlink, "/etc")), "50000 files": ("warmup", _many),
    "a FIFO": ("warmup/a.pb", os.mkfifo), "1 TB of nothing": ("warmup/a.pb", hole),
    "a hole behind a bad header": ("warmup/a.ulfrec", _with_hole(HEAD + _header(0xffffffff))),
    "a hole behind a good header": ("warmup/a.ulfrec", _with_hole(HEAD + _header(64 << 20))),
    "4 million empty ones": ("warmup/a.ulfrec", HEAD + _header(0) * 4_000_000),
    "nested 8 million deep": ("warmup/a.pb", b"\x5b" * (8 << 20)),
    "a shape of 2^80": ("warmup/a.pb", _record(dense("x", [HUGE, HUGE]).SerializeToString())),
    "8 million features": ("warmup/a.pb", _record(b"\x22\0" * (8 << 20))),
    "16 million outputs": ("warmup/a.pb", _record(more=b"\x52\0" * (16 << 20))),
    "4 million negative rows": ("warmup/a.pb", _record(more=(b"\x58" + b"\xff" * 9 + b"\x01") * (4 << 20))),
}
for _name, (_path, _make) in FILES.items():
    REGISTERED.append(Attack(f"recordings: {_name}", "appear in the repository of a running daemon", functools.partial(
        appears, _name, functools.partial(_version, name=_path, make=_make)), seconds=30))
