"""Tables of versions that appear: deltas, table files, RocksDB, caches.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import os
import shutil
import struct
import subprocess
import time

import numpy as np

from harness import env, modelfiles
from harness.clients import native_pb, predict_request
from harness.modelfiles import layer
from harness.small import stamp_files, stamp_inputs
from attacks.common import PREDICT, REGISTERED, Attack, attack
from attacks.models import SECRET, appears, hole

MANY = 11_000  # load.max_files are 10000.
TIME = "event_time { seconds: 1700000000 }\n"
MOST = (1 << 63) - 1


def _ulf(*arguments):
    subprocess.run([env.program("ulf"), *arguments], check=True, stdout=subprocess.DEVNULL)


def _outside(folder):
    path = os.path.join(os.path.dirname(os.path.dirname(folder)), "outside")
    modelfiles.write(path, SECRET + " opens everything\n")
    return path


def _with_deltas(make):
    """The folder "deltas" of a version that is good."""
    def whole(folder):
        modelfiles.write_version(folder, stamp_files(1), success=False)
        make(os.path.join(folder, "deltas"))
    return whole


def _epoch(path, manifest, files=(), success=True):
    os.makedirs(path)
    modelfiles.write(os.path.join(path, "delta.textproto"), manifest)
    for name, make in dict(files).items():
        target = os.path.join(path, name)
        if callable(make):
            make(target)
        else:
            modelfiles.write(target, make)
    if success:
        modelfiles.write(os.path.join(path, "_SUCCESS"), b"")


def _one(manifest, files=()):
    return _with_deltas(lambda deltas: _epoch(os.path.join(deltas, "1"), manifest, files))


def _epochs(names, manifest=None):
    def make(deltas):
        for name in names:
            if manifest is None:
                os.makedirs(os.path.join(deltas, name))
                modelfiles.write(os.path.join(deltas, name, "_SUCCESS"), b"")
            else:
                _epoch(os.path.join(deltas, name), manifest(name), {"d": "5\n" if name == "1" else "6\n"})
    return _with_deltas(make)


def _chain(n):
    """Each puts the same row, of its own id."""
    def make(folder):
        modelfiles.write_version(folder, stamp_files(1), success=False)
        text = os.path.join(folder, "..", "row")
        for epoch in range(1, n + 1):
            path = os.path.join(folder, "deltas", str(epoch))
            os.makedirs(path)
            modelfiles.write(text, f"{epoch}," + ",".join(["0.5"] * 8) + "\n")
            if epoch == 1:
                _ulf("table", "build", os.path.join(path, "put"), text)
            else:
                shutil.copy(os.path.join(folder, "deltas", "1", "put"), path)
            modelfiles.write(os.path.join(path, "delta.textproto"),
                             f'base_epoch: {epoch - 1} {TIME} tables {{ name: "items" put: "put" }}')
            modelfiles.write(os.path.join(path, "_SUCCESS"), b"")
    return make


def _link(target):
    return lambda path: os.symlink(target, path)


def _link_out(path):
    os.symlink(_outside(os.path.dirname(os.path.dirname(os.path.dirname(path)))), path)


PUT, DROP = 'tables { name: "items" put: "d" }\n', 'tables { name: "items" drop: "d" }\n'
DELTAS = {
    "a file": _with_deltas(lambda deltas: modelfiles.write(deltas, b"x")), "a FIFO": _with_deltas(os.mkfifo),
    "a link to itself": _with_deltas(_link("deltas")), "a link to /": _with_deltas(_link("/")),
    "a link to /proc": _with_deltas(_link("/proc")), "11000 epochs": _epochs([str(i + 1) for i in range(MANY)]),
    "odd names": _epochs(["0", "-1", "01", "+1", "１", "1e3", str(MOST), str(MOST + 1), "9" * 200, "\x1b[2J"]),
    "the last epoch there is": _epochs([str(MOST)], lambda n: f"base_epoch: {MOST - 1} {TIME} {DROP}"),
    "300 epochs, each good": _chain(300), "a manifest that is a FIFO": _with_deltas(
        lambda d: (os.makedirs(d + "/1"), os.mkfifo(d + "/1/delta.textproto"), modelfiles.write(d + "/1/_SUCCESS", b""))),
    "a manifest that is a link out": _with_deltas(
        lambda d: (os.makedirs(d + "/1"), _link_out(d + "/1/delta.textproto"), modelfiles.write(d + "/1/_SUCCESS", b""))),
    "a manifest of braces": _one("tables { " * 1_000_000), "a million tables": _one(TIME + 'tables { name: "x" drop: "d" }' * 1_000_000),
    "one table a million times": _one(TIME + "".join(f'tables {{ name: "t{i}" drop: "d" }}' for i in range(1_000_000)), {"d": "1\n"}),
    "times at the ends of time": _one(f"event_time {{ seconds: {MOST} nanos: 2147483647 }} {DROP}", {"d": "1\n"}),
    "the largest time": _one(f"event_time {{ seconds: 9000000000 nanos: 999999999 }} {DROP}", {"d": "1\n"}),
    "a file to put that is a link out": _one(TIME + PUT, {"d": _link_out}), "ids to drop that are a link out": _one(TIME + DROP, {"d": _link_out}),
    "sums of a file elsewhere": _one(TIME + DROP + f'sums {{ path: "../../../../outside" sha256: "{"0" * 64}" }}', {"d": "1\n"}),
    "sums of a link out": _one(TIME + DROP + f'sums {{ path: "s" sha256: "{"0" * 64}" }}', {"d": "1\n", "s": _link_out}),
    "weights that are a link out": _one(TIME + 'weights: "w"', {"w": _link_out}), "weights of 1 TB": _one(TIME + 'weights: "w"', {"w": hole}),
    "a file to put that is a FIFO": _one(TIME + PUT, {"d": os.mkfifo}), "a file to put of 1 TB": _one(TIME + PUT, {"d": hole}),
    "ids to drop of 1 TB": _one(TIME + DROP, {"d": hole}), "8 million ids to drop": _one(TIME + DROP, {"d": "1\n" * 8_000_000}),
    "ids beyond 64 bits": _one(TIME + DROP, {"d": "9223372036854775808\n"}), "all ids dropped": _one(
        TIME + DROP, {"d": "".join(f"{i}\n" for i in range(10))}), "a line of 64 MB": _one(TIME + DROP, {"d": "1" * (64 << 20)}),
}


def _mapped(change):
    """A table file, changed."""
    def make(folder):
        modelfiles.write_version(folder, stamp_files(1), success=False)
        items = os.path.join(folder, "items")
        os.rename(items, items + ".txt")
        _ulf("table", "build", items, items + ".txt")
        with open(items, "r+b") as file:
            change(file)
    return make


def _rocksdb(change, store=""):
    def make(folder):
        manifest = f'tables {{ name: "items" store {{ rocksdb: "items.db" {store} }} }}\n'
        modelfiles.write_version(folder, {**stamp_files(1), "model.textproto": manifest}, success=False)
        items = os.path.join(folder, "items")
        os.rename(items, items + ".txt")
        _ulf("table", "build", items + ".db", items + ".txt", "--to=rocksdb")
        change(os.path.join(folder, "items.db"))
    return make


def _named(folder, begin, make):
    """Does it to the first file of that name."""
    for name in sorted(os.listdir(folder)):
        if begin in name:
            path = os.path.join(folder, name)
            os.remove(path)
            make(path)
            return


def _noise(path):
    modelfiles.write(path, bytes(range(256)) * 4000)


def _at(offset, data):
    def change(file):
        file.seek(offset)
        file.write(data)
    return change


TWO_PARTS = ('layer_params { type: "input_layer" top: "u" top: "a" }\n' + layer("relu_layer", "r", ["u"], ["v"]) +
             layer("multiply_layer", "m", ["v", "a"], ["y"]))
LEVELS = 'inputs { name: "u" level: INPUT_LEVEL_USER row_shape: 4 } inputs { name: "a" level: INPUT_LEVEL_AD row_shape: 4 }\n'
TABLES = {
    "a table file of sizes 2^63": _mapped(_at(16, struct.pack("<8Q", *[MOST] * 8))), "a table file of noise": _mapped(_at(64, os.urandom(4000))),
    "a table file of 1 TB": _mapped(lambda file: file.truncate(1 << 40)), "a table file of its head": _mapped(lambda file: file.truncate(100)),
    "RocksDB: CURRENT is a FIFO": _rocksdb(lambda d: _named(d, "CURRENT", os.mkfifo)),
    "RocksDB: CURRENT is a link out": _rocksdb(lambda d: _named(d, "CURRENT", _link_out)),
    "RocksDB: CURRENT is noise": _rocksdb(lambda d: _named(d, "CURRENT", _noise)),
    "RocksDB: the list is noise": _rocksdb(lambda d: _named(d, "MANIFEST", _noise)),
    "RocksDB: the list has 1 TB": _rocksdb(lambda d: _named(d, "MANIFEST", hole)),
    "RocksDB: the settings are noise": _rocksdb(lambda d: _named(d, "OPTIONS", _noise)),
    "RocksDB: rows are noise": _rocksdb(lambda d: _named(d, ".sst", _noise)),
    "RocksDB: rows have 1 TB": _rocksdb(lambda d: _named(d, ".sst", hole)),
    "RocksDB: the log is noise": _rocksdb(lambda d: _named(d, ".log", _noise)),
    "RocksDB: the log has 1 TB": _rocksdb(lambda d: _named(d, ".log", hole)),
    "RocksDB: the cache of 2^63 - 1": _rocksdb(lambda d: None, f"cache_bytes: {MOST}"),
    "RocksDB: times of 2^31 - 1": _rocksdb(lambda d: None, "fetch_timeout_ms: 2147483647 row_lifetime_ms: 2147483647"),
    "users cached in 2^63 - 1 bytes": {"graph_ulf.txt": TWO_PARTS, "model.textproto": LEVELS + f"user_cache_bytes: {MOST}\n"},
    "users and a table, 2^63 - 1 bytes": {**stamp_files(1), "model.textproto": f"user_cache_bytes: {MOST}\n"},
    "a limit of -2^63": {**stamp_files(1), "model.textproto": f"memory_limit_bytes: -{MOST + 1}\n"},
}

for _kind, _all in (("deltas", DELTAS), ("table", TABLES)):
    for _name, _content in _all.items():
        REGISTERED.append(Attack(f"{_kind}: {_name}"[:44], "appears in the repository of a running daemon", functools.partial(
            appears, f"{_kind}: {_name}", _content), seconds=30,
            short=_name in {"ids to drop that are a link out", "RocksDB: CURRENT is a FIFO"}))


def _ids_that_meet(n):
    """Ids whose MurmurHash3 differs above bit 24 only, which an open table of fewer places takes for one."""
    def unhash(x):
        x ^= x >> 33
        x = x * 0x9cb4b2f8129337db & (1 << 64) - 1
        x ^= x >> 33
        x = x * 0x4f74430c22a54005 & (1 << 64) - 1
        return x ^ x >> 33
    return np.array([unhash(i << 24) for i in range(n)], np.uint64).astype(np.int64)


@attack("ids that meet in one place", "half a million of them, of a table in RocksDB", seconds=15)
def meeting(site):
    aside = os.path.join(site.scene.dir, "aside", "1")
    shutil.rmtree(os.path.dirname(aside), ignore_errors=True)
    os.makedirs(aside)
    _rocksdb(lambda folder: None, "fetch_timeout_ms: 1000")(aside)
    modelfiles.write(os.path.join(aside, "_SUCCESS"), b"")
    os.rename(os.path.dirname(aside), os.path.join(site.scene.repository, "stored"))
    site.scene.until_tried(site, "stored")
    request = native_pb.PredictRequest(model=native_pb.ModelSpec(name="stored"))
    feature = request.ad_features.add(name="ad").sparse
    ids = _ids_that_meet(499_000)
    feature.ids.extend(ids.tolist())
    feature.counts.extend([250] * 1996)
    message = request.SerializeToString()
    site.begin()
    while not site.over():
        site.call(PREDICT, message, timeout=5)
    shutil.rmtree(os.path.join(site.scene.repository, "stored"))
    time.sleep(1)


@attack("deltas: of a version that serves", "epochs that come and go, all of them bad", seconds=8)
def under_way(site):
    folder = os.path.join(site.scene.repository, "under_way", "1")
    modelfiles.write_version(folder, stamp_files(1))
    request = predict_request("under_way", stamp_inputs([1]), ()).SerializeToString()
    while not site.over() and site.call(PREDICT, request) != "OK":
        time.sleep(0.05)
    cases = [d for n, d in DELTAS.items() if "epochs" not in n and "million" not in n]
    while not site.over():
        for make in cases:
            aside = os.path.join(site.scene.dir, "aside")
            shutil.rmtree(aside, ignore_errors=True)
            os.makedirs(os.path.join(aside, "1"))
            make(os.path.join(aside, "1"))
            os.rename(os.path.join(aside, "1", "deltas"), os.path.join(folder, "deltas"))
            time.sleep(0.1)
            if site.call(PREDICT, request) != "OK":
                site.faults.append("what served is gone")
            os.rename(os.path.join(folder, "deltas"), os.path.join(aside, "gone"))
            if site.over():
                break
    shutil.rmtree(os.path.dirname(folder))
    time.sleep(1)


@attack("table: cut under the daemon", "a mapped file that is cut and made whole again while it serves", seconds=6, short=True)
def cut(site):
    folder = os.path.join(site.scene.repository, "cut", "1")
    os.makedirs(folder)
    _mapped(lambda file: None)(folder)
    with open(os.path.join(folder, "items"), "rb") as file:
        whole = file.read()
    modelfiles.write(os.path.join(folder, "_SUCCESS"), b"")
    request = predict_request("cut", stamp_inputs([1, 2, 3]), ()).SerializeToString()
    while not site.over():
        for size in (len(whole), 5000, 4096, 100, 0):
            with open(os.path.join(folder, "items"), "r+b") as file:
                file.truncate(size)
                for _ in range(5):
                    site.call(PREDICT, request)
                file.seek(0)
                file.write(whole)
    shutil.rmtree(os.path.dirname(folder))
    time.sleep(1)


@attack("users cached without end", "a model that caches 64 MiB of users, each request another one", seconds=8)
def cached_users(site):
    folder = os.path.join(site.scene.repository, "cached", "1")
    modelfiles.write_version(folder, {"graph_ulf.txt": TWO_PARTS, "model.textproto": LEVELS + f"user_cache_bytes: {64 << 20}\n"})
    i = 0
    while not site.over():
        futures = []
        for _ in range(100):
            i += 1
            request = predict_request("cached", {"u": np.full((1, 4), i, np.float32), "a": np.ones((1, 4), np.float32)}, {"u"})
            futures.append(site.future(PREDICT, request.SerializeToString()))
        for future in futures:
            future.exception()
    shutil.rmtree(os.path.dirname(folder))
    time.sleep(1)
