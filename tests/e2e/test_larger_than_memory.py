"""A table that is larger than all the memory that the daemon may take, its pages of files included:
built, mapped and in RocksDB, with the scores that its ids have.  ULFD_LARGE=TABLE_MB,MEMORY_MB,SECONDS
makes it larger and the loads longer, and prints how fast it is (tests/e2e/README.md).
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import os
import resource
import shutil
import subprocess
import time
import unittest

import numpy as np

from harness import env
from harness.admin import ON_REQUEST, AdminClient
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import Daemon
from harness.loading import command, load, ulf
from harness.memory_group import MemoryGroup
from harness.metrics import scrape
from harness.modelfiles import embedding_conf, layer, sparse_inputs, weights_text, write_version
from harness.small import stamp_inputs

TABLE_MB, MEMORY_MB, SECONDS = (int(n) for n in os.environ.get("ULFD_LARGE", "300,200,1").split(","))
DIM = 64
ROWS = TABLE_MB * 1_000_000 // (8 + 4 * DIM)
BLOCK = min(ROWS, 1_000_003)  # Rows that are written down; the others repeat them.
ROWS -= ROWS % BLOCK
SMALL_ROWS = 20_000


def rows_of(ids):
    """Small whole numbers, so that every sum of them is exact."""
    number = (np.asarray(ids) % BLOCK).astype(np.int32)
    rows = (number[:, None] * np.arange(DIM, dtype=np.int32) % 7).astype(np.float32)
    rows[:, 0] = number
    return rows


def files(manifest):
    """The score of an id is the sum of its row, and 1."""
    return {
        "graph_ulf.txt": (layer("input_layer", "", [], sparse_inputs("ad")) +
                          layer("embedding_layer", "embedding", sparse_inputs("ad"), ["e"],
                                param='embedding_param { embedding_conf_path: "ad.conf" level: 0 }') +
                          layer("inner_product_layer", "fc", ["e"], ["score"])),
        "ad.conf": embedding_conf({"ad": ("items", DIM)}, [[("ad", "udf_type: 0")]]),
        "weights.pb": weights_text({"fc": [np.ones((DIM, 1)), np.array([1])]}),
        **manifest,
    }


def status_bytes(pid, name):
    """A line of /proc/PID/status; 0: the process has no memory any more."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith(name + ":")), 0)


def build(target, *flags):
    """Writes the table; the inputs take a small part of its bytes."""
    folder = env.scratch("large_input")
    block = os.path.join(folder, "rows.npy")
    np.save(block, rows_of(np.arange(BLOCK)))
    inputs = []
    for first in range(0, ROWS, BLOCK):
        inputs += [os.path.join(folder, f"keys{first}.npy"), block]
        np.save(inputs[-2], np.arange(first, first + BLOCK))
    memory_mb, peak_mb = max(32, MEMORY_MB // 8), 0
    begin = time.monotonic()
    with open(os.path.join(folder, "out"), "w+", encoding="utf-8") as out:
        with subprocess.Popen(command("table", "build", target, *inputs, f"--memory={memory_mb}",
                                      *flags), stdout=out, stderr=out) as process:
            while process.poll() is None:
                # What wait4 tells includes what this process had when it forked.
                peak_mb = status_bytes(process.pid, "VmHWM") >> 20 or peak_mb
                time.sleep(0.02)
        out.seek(0)
        assert process.returncode == 0, out.read()
    shutil.rmtree(folder)
    print(f"\n{target}: {ROWS} rows built in {time.monotonic() - begin:.0f} s, "
          f"{peak_mb} MB of memory, --memory={memory_mb}")
    # Twice the memory for rows, half a byte for each row, and the program.
    assert peak_mb < 2 * memory_mb + ROWS / 2e6 + 100, peak_mb


def add_small(repository):
    """The same model with some of the rows in private memory."""
    folder = os.path.join(repository, "small", "1")
    write_version(folder, files({}))
    npz, table = os.path.join(folder, "items.npz"), os.path.join(folder, "items.ulft")
    np.savez(npz, keys=np.arange(SMALL_ROWS), rows=rows_of(np.arange(SMALL_ROWS)))
    for arguments in (("build", table, npz), ("export", table, os.path.join(folder, "items"))):
        code, out, err = ulf("table", *arguments)
        assert code == 0, out + err
    os.unlink(npz)
    os.unlink(table)


def forget_pages(folder):
    """Pages that are in memory count for whoever brought them."""
    for parent, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(parent, name), os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


@contextlib.contextmanager
def limited(repository, config):
    """A daemon that has no more than MEMORY_MB, and how much it has."""
    try:
        group = MemoryGroup(MEMORY_MB << 20)
    except OSError:  # Not root, or no such groups: what it allocates, then.
        with Daemon(repository, config, name="large") as daemon:
            most = status_bytes(daemon.process.pid, "VmData") + (MEMORY_MB << 20)
            resource.prlimit(daemon.process.pid, resource.RLIMIT_DATA, (most, most))
            yield daemon, lambda: 0
        return
    try:
        with Daemon(repository, config, name="large", before=group.enter) as daemon:
            yield daemon, group.bytes
    finally:
        group.close()


@unittest.skipIf(env.SANITIZED, "the sanitizer's own memory is more than the daemon may have")
class LargerThanMemoryTest(unittest.TestCase):
    CONFIG = (ON_REQUEST + 'admin_address: "unix:admin.sock"\n'
              f"memory_budget_bytes: {MEMORY_MB << 19}\n")

    def setUp(self):
        self.repository = os.path.join(env.scratch("large"), "models")
        self.version = os.path.join(self.repository, "large", "1")
        add_small(self.repository)

    def tearDown(self):
        shutil.rmtree(self.repository)

    def test_a_mapped_file(self):
        write_version(self.version, files({}))
        build(os.path.join(self.version, "items"))
        self.serve()

    def test_rocksdb(self):
        store = (f'tables {{ name: "items" store {{ rocksdb: "items.db" fetch_timeout_ms: 60000 '
                 f"cache_bytes: {MEMORY_MB << 18} }} }}\n")
        write_version(self.version, files({"model.textproto": store}))
        build(os.path.join(self.version, "items.db"), "--to=rocksdb")
        page = self.serve()
        hits, misses = (page.sum("ulfd_embedding_cache_ids_total", model="large", result=result)
                        for result in ("hit", "miss"))
        print(f"  {100 * hits / (hits + misses):.0f} % of the ids were in memory")
        self.assertGreater(hits, misses / 10)

    def serve(self):
        forget_pages(self.version)
        with limited(self.repository, self.CONFIG) as (daemon, taken):
            with AdminClient(daemon.admin_target) as admin, Client(daemon) as self.client:
                # Where a limit comes after the start.
                admin.call("LoadModel", name="large", version=1)
                return self.ask_and_load(daemon, taken)

    def ask_and_load(self, daemon, taken):
        random = np.random.RandomState(1)
        private, ids = [], 0
        self.ask(random)
        read = self.read_bytes(daemon)
        for part in range(8):
            report = self.load(daemon, "large", closed_loop=4, duration=f"{SECONDS}s", seed=part)
            ids += 200 * report["calls"]["answered"] + self.ask(random)
            private.append(self.private_bytes(daemon))
            self.assertLessEqual(taken(), MEMORY_MB << 20)
        # Not what lies around rows: that would drive other rows out.
        read = self.read_bytes(daemon) - read
        print(f"  {read / ids:.0f} bytes read per id")
        self.assertLess(read, 16384 * ids)
        print("  private MB:", *(n >> 20 for n in private), f"of all {taken() >> 20}")
        self.assertLess(max(private[4:]), 1.05 * max(private[:4]) + (8 << 20), private)
        page = scrape(daemon)
        self.assertEqual(page.sum("ulfd_embedding_late_ids_total"), 0)
        if SECONDS > 1:
            self.measure(daemon)
        return page

    def ask(self, random):
        for ids in (random.zipf(1.05, 2000) % ROWS, random.randint(0, ROWS, 2000)):
            reply = self.client.predict(predict_request("large", stamp_inputs(ids), ()))
            self.assertEqual(reply.late_ids, 0)
            np.testing.assert_array_equal(outputs_of(reply)["score"].ravel(),
                                          rows_of(ids).sum(axis=1) + 1)
        return 4000

    def load(self, daemon, model, **more):
        """Frequent ids have low numbers; hashing spreads them over the table."""
        last = (ROWS if model == "large" else SMALL_ROWS) - 1
        flags = {"ids": f"0..{last}", "id_zipf": 1.05, "ads": 200, "timeout": "10s", "pool": 0,
                 "warmup": "0s", **more}
        report = load(daemon.target, f"--model={model}",
                      *(f"--{name}={value}" for name, value in flags.items()))
        self.assertEqual(report["calls"]["failed"] + report["calls"]["failed_during_warmup"], 0,
                         report["reasons"])
        return report

    def measure(self, daemon):
        """Prints figures; whoever runs this judges."""
        capacity = {}
        for model in ("small", "large"):
            found = self.load(daemon, model, closed_loop=8, duration=f"{SECONDS}s", seed=8)
            capacity[model] = found["goodput_per_second"]
            print(f"  {model}: {capacity[model]:.0f} calls/s of 200 ads in a closed loop")
        for share in (0.1, 0.6):
            for model in ("small", "large"):
                found = self.load(daemon, model, rate=share * capacity["large"],
                                  duration=f"{SECONDS + 2}s", warmup="2s", seed=9)
                latency = found["latency_ms"]["corrected"]
                print(f"  {model} at {100 * share:.0f} % of large's: p50 {latency['p50']:.2f} ms, "
                      f"p99 {latency['p99']:.2f} ms")

    @staticmethod
    def read_bytes(daemon):
        with open(f"/proc/{daemon.process.pid}/io", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))

    @staticmethod
    def private_bytes(daemon):
        return (status_bytes(daemon.process.pid, "RssAnon") -
                int(scrape(daemon).sum("ulfd_embedding_cache_bytes")))
