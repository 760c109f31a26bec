"""Models whose tables are mapped files: the scores of text, one mapping for versions whose tables
are the same, and a file that is cut under the daemon.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import signal
import subprocess
import time
import unittest

import grpc
import numpy as np

from harness import env
from harness.admin import ON_REQUEST, AdminDaemonTest
from harness.clients import outputs_of, predict_request
from harness.fixtures import add_stamp
from harness.loading import command, ulf
from harness.metrics import scrape
from harness.small import stamp_inputs, stamp_of
from test_reload import IDS


class TablesTest(AdminDaemonTest):
    """The highest version serves: each test has higher ones than those before it."""

    CONFIG = ON_REQUEST + 'admin_address: "unix:admin.sock"\n'

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)
        add_stamp(repository, 1, name="other")

    def path(self, version, file="items", model="stamp"):
        return os.path.join(self.repository, model, str(version), file)

    def add_mapped(self, stamp, version, rows="fp32"):
        add_stamp(self.repository, stamp, version=version)
        items = self.path(version)
        code, out, err = ulf("table", "build", items, items, f"--rows={rows}")
        self.assertEqual(code, 0, out + err)

    def load(self, version):
        reply = self.admin.call("LoadModel", name="stamp", version=version)
        self.assertIn(version, [v.version for v in reply.versions])

    def scores(self, model="stamp", ids=IDS):
        reply = self.client.predict(predict_request(model, stamp_inputs(list(ids)), ()))
        return outputs_of(reply)["score"].ravel().tolist()

    def mappings(self):
        """Paths of mapped tables."""
        with open(f"/proc/{self.daemon.process.pid}/maps", encoding="utf-8") as file:
            return {line.split()[5] for line in file if line.rstrip().endswith("/items")}

    def test_scores_are_those_of_text(self):
        add_stamp(self.repository, 9, version=51)
        self.load(51)
        text = self.scores()
        self.assertEqual(stamp_of(IDS, text), 9)
        for version, rows in ((52, "fp32"), (53, "fp16")):  # Halves hold such small numbers, too.
            self.add_mapped(9, version, rows)
            self.load(version)
            self.assertEqual(self.scores(), text)
        before = scrape(self.daemon)
        self.scores(ids=[900, 3])
        self.assertEqual(scrape(self.daemon).sum("ulfd_embedding_missing_keys_total", table="items")
                         - before.sum("ulfd_embedding_missing_keys_total", table="items"), 1)

    def test_equal_tables_are_mapped_once(self):
        self.add_mapped(5, 41)
        self.load(41)
        shutil.copytree(self.path(41, ""), self.path(42, ""))
        weights = self.path(42, "weights.pb")
        with open(weights, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("5", text)
        with open(weights, "w", encoding="utf-8") as file:
            file.write("# Only the weights are others.\n" + text)
        self.load(42)
        self.assertEqual(stamp_of(IDS, self.scores()), 5)
        mapped = self.mappings()
        self.assertIn(os.path.realpath(self.path(41)), mapped)
        self.assertNotIn(os.path.realpath(self.path(42)), mapped)

    def test_a_file_that_is_cut_fails_calls_and_nothing_else(self):
        self.add_mapped(7, 21)
        self.load(21)
        self.assertEqual(stamp_of(IDS, self.scores()), 7)
        os.truncate(self.path(21), 4096)
        for _ in range(3):
            with self.assert_refused(grpc.StatusCode.DATA_LOSS, "/items: byte ",
                                     "cannot be read: the file was cut"):
                self.scores()
        self.assertEqual(stamp_of(IDS, self.scores("other")), 1)
        self.add_mapped(8, 22)
        self.load(22)
        self.assertEqual(stamp_of(IDS, self.scores()), 8)

    def test_bad_files_are_refused_and_what_serves_stays(self):
        self.add_mapped(3, 31)
        self.load(31)
        self.add_mapped(4, 32)
        with open(self.path(32), "rb") as file:
            good = file.read()
        wider = self.path(32, "wider")
        with open(wider, "w", encoding="utf-8") as file:
            file.write("1,1,2,3,4,5\n")
        self.assertEqual(ulf("table", "build", wider, wider)[0], 0)
        with open(wider, "rb") as file:
            wide = file.read()
        for bad, text in ((good[:-1], "bytes, the header says"),
                          (good[:20] + b"\x7f" + good[21:], "checksum of the header"),
                          (good[:8] + good[11:7:-1] + good[12:], "other byte order"),
                          (good[:12] + b"\3" + good[13:], "version 3, want 1 or 2"),
                          (good[:4200] + bytes([good[4200] ^ 1]) + good[4201:], "bytes 4096 to "),
                          (wide, "dim")):
            with open(self.path(32), "wb") as file:
                file.write(bad)
            with self.assertRaises(grpc.RpcError) as caught:
                self.load(32)
            self.assertIn("items", caught.exception.details())
            self.assertIn(text, caught.exception.details())
            self.assertEqual(stamp_of(IDS, self.scores()), 3)


class StoppedTest(unittest.TestCase):
    """What SIGINT ends leaves nothing half-made beside the tables."""

    def setUp(self):
        self.folder = env.scratch("stopped")
        self.rows = os.path.join(self.folder, "rows.npz")
        keys = np.arange(300000, dtype=np.int64)
        np.savez(self.rows, keys=keys, rows=np.ones((len(keys), 16), np.float32))

    def stop(self, folder, *arguments):
        """Once there is something new in the folder."""
        before = set(os.listdir(folder))
        process = subprocess.Popen(command("table", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        while set(os.listdir(folder)) == before and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60 * env.SLOWNESS)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("stopped", err)
        self.assertEqual(set(os.listdir(folder)), before)

    def test_build(self):
        self.stop(self.folder, "build", os.path.join(self.folder, "items.db"), self.rows, "--to=rocksdb")

    def test_push(self):
        deltas = os.path.join(self.folder, "1", "deltas")
        os.makedirs(deltas)
        self.stop(deltas, "push", os.path.dirname(deltas), "--epoch=1", f"put:items={self.rows}")
