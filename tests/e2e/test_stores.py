"""Models whose tables lie in RocksDB: the scores of tables in memory, one tier for versions with the
same rows, rows that are late, and stores that are damaged.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil

import grpc
import numpy as np

from harness import env
from harness.admin import ON_REQUEST, AdminClient, AdminDaemonTest
from harness.clients import Client, infer_outputs, infer_request, outputs_of, predict_request
from harness.daemon import Daemon, wait_for
from harness.fixtures import add_shop, add_stamp, shop
from harness.loading import ulf
from harness.metrics import scrape
from harness.modelfiles import table_text
from harness.shop import USER
from harness.small import STAMP_DIM, stamp_inputs, stamp_of
from test_reload import IDS

# No row is late for want of time, however busy the machine is.
IN_ROCKSDB = 'tables { name: "%s" store { rocksdb: "%s" fetch_timeout_ms: 60000 %s } %s }\n'


def build(source, target, *flags):
    code, out, err = ulf("table", "build", target, source, "--to=rocksdb", *flags)
    assert code == 0, out + err


def into_rocksdb(folder, tables, store="", table=""):
    """Moves text tables of a version into RocksDB."""
    with open(os.path.join(folder, "model.textproto"), "a", encoding="utf-8") as file:
        for name in tables:
            build(os.path.join(folder, name), os.path.join(folder, name + ".db"))
            os.unlink(os.path.join(folder, name))
            file.write(IN_ROCKSDB % (name, name + ".db", store, table))


class StoresTest(AdminDaemonTest):
    """The highest version serves: each test has higher ones than those before it."""

    CONFIG = (ON_REQUEST + 'admin_address: "unix:admin.sock"\n'
              "logging { missing_ids_per_second: 1000 }\n")

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        add_stamp(repository, 1)
        folder = os.path.join(repository, "stored", "1")
        shutil.copytree(os.path.join(repository, "shop", "1"), folder)
        # So little room that most rows have to be read again and again.
        into_rocksdb(folder, ("user_table", "item_table"), "cache_bytes: 20000")

    def path(self, version, *names):
        return os.path.join(self.repository, "stamp", str(version), *names)

    def add(self, stamp, version, **manifest):
        add_stamp(self.repository, stamp, version=version)
        into_rocksdb(self.path(version), ["items"], **manifest)

    def load(self, version):
        reply = self.admin.call("LoadModel", name="stamp", version=version)
        self.assertIn(version, [v.version for v in reply.versions])

    def scores(self, ids=IDS, timeout=20):
        reply = self.client.predict(predict_request("stamp", stamp_inputs(list(ids)), ()), timeout)
        self.assertEqual(reply.late_ids, 0)
        return outputs_of(reply)["score"].ravel().tolist()

    def refused(self, version):
        with self.assertRaises(grpc.RpcError) as caught:
            self.load(version)
        return caught.exception.details()

    def test_scores_are_those_of_memory(self):
        before = scrape(self.daemon)
        for ads in (1, 7, 200):
            for seed in range(5):
                inputs = shop().inputs(ads, seed)
                for make, call, outputs in ((predict_request, self.client.predict, outputs_of),
                                            (infer_request, self.client.infer, infer_outputs)):
                    memory = outputs(call(make("shop", inputs, USER)))
                    stored = outputs(call(make("stored", inputs, USER)))
                    self.assertEqual(memory.keys(), stored.keys())
                    for name in memory:
                        np.testing.assert_array_equal(memory[name], stored[name])
        after = scrape(self.daemon)

        def grown(name, **labels):
            return (after.sum(name, model="stored", **labels) -
                    before.sum(name, model="stored", **labels))

        self.assertGreater(grown("ulfd_embedding_cache_ids_total", result="hit"), 0)
        self.assertGreater(grown("ulfd_embedding_cache_ids_total", result="miss"), 0)
        self.assertGreater(grown("ulfd_embedding_fetch_duration_seconds_count"), 0)
        self.assertEqual(grown("ulfd_embedding_late_ids_total"), 0)
        self.assertLessEqual(after.sum("ulfd_embedding_cache_bytes", model="stored"), 40000)

    def test_a_directory_becomes_a_table_file_again(self):
        folder = env.scratch("back")
        with open(os.path.join(folder, "text"), "w", encoding="utf-8") as file:
            file.write("".join(f"{id},{id / 3},-1e-30\n" for id in range(-5, 3000, 7)))
        text, stored, back = (os.path.join(folder, name) for name in ("text", "db", "back.ulft"))
        build(text, stored, "--rows=fp16")
        self.assertEqual(ulf("table", "build", back, stored, "--rows=fp16")[0], 0)
        self.assertEqual(ulf("table", "build", text + ".ulft", text, "--rows=fp16")[0], 0)
        code, out, err = ulf("table", "diff", text + ".ulft", back)
        self.assertEqual((code, out), (0, "0 rows are new, 0 have other values, 0 are gone\n"), err)
        for action in (("inspect", stored), ("verify", stored), ("export", stored),
                       ("diff", back, stored)):
            code, out, err = ulf("table", *action)
            self.assertEqual((code, out), (1, ""))
            self.assertIn(f"{stored}: a directory, want a table file; `ulf table build ", err)

    def test_merged_requests_get_their_own_rows(self):
        requests = []
        for seed in range(40):
            inputs = shop().inputs(3, seed)
            requests.append((self.client.Predict.future(predict_request("stored", inputs, USER),
                                                        timeout=30),
                             outputs_of(self.client.predict(predict_request("shop", inputs,
                                                                            USER)))))
        for future, memory in requests:
            found = outputs_of(future.result())
            for name in memory:
                np.testing.assert_allclose(found[name], memory[name], rtol=0, atol=1e-6)

    def test_rows_in_memory_outlast_a_reload(self):
        self.add(5, 61)
        self.load(61)
        self.assertEqual(stamp_of(IDS, self.scores()), 5)
        shutil.copytree(self.path(61), self.path(62))
        with open(self.path(62, "weights.pb"), "a", encoding="utf-8") as file:
            file.write("# Only the weights are others.\n")
        self.load(62)
        before = scrape(self.daemon)
        self.assertEqual(stamp_of(IDS, self.scores()), 5)
        page = scrape(self.daemon)
        self.assertEqual(page.sum("ulfd_embedding_cache_ids_total", model="stamp", result="miss") -
                         before.sum("ulfd_embedding_cache_ids_total", model="stamp",
                                    result="miss"), 0)

    def test_hot_rows_are_in_memory_before_a_version_serves(self):
        folder = env.scratch("hot_ids")
        repository, kept = os.path.join(folder, "models"), os.path.join(folder, "kept")
        os.mkdir(kept)
        add_stamp(repository, 5)
        into_rocksdb(os.path.join(repository, "stamp", "1"), ["items"])
        config = ON_REQUEST + f'admin_address: "unix:admin.sock"\nhot_ids_directory: "{kept}"\n'
        request = predict_request("stamp", stamp_inputs(list(IDS)), ())

        def ask(daemon, times=1):
            """How many ids were not in memory."""
            with Client(daemon) as client:
                for _ in range(times):
                    scores = outputs_of(client.predict(request))["score"].ravel().tolist()
                    self.assertEqual(stamp_of(IDS, scores), 5)
            return scrape(daemon).sum("ulfd_embedding_cache_ids_total", model="stamp",
                                      result="miss")

        with Daemon(repository, config, name="first") as daemon:
            self.assertEqual(ask(daemon, times=4), len(IDS))
        self.assertEqual(os.listdir(kept), ["stamp%2Fitems.ids"])
        with Daemon(repository, config, name="again") as daemon:
            before = scrape(daemon).sum("ulfd_embedding_cache_ids_total", model="stamp",
                                        result="miss")
            self.assertEqual(ask(daemon) - before, 0)
            # Other rows in a new version: what the one before is asked for is read ahead.
            add_stamp(repository, 5, version=2)
            path = os.path.join(repository, "stamp", "2")
            with open(os.path.join(path, "items"), "a", encoding="utf-8") as file:
                file.write(table_text({1000: [0] * STAMP_DIM}))
            into_rocksdb(path, ["items"])
            with AdminClient(daemon.admin_target) as admin:
                admin.call("LoadModel", name="stamp", version=2)
            before = scrape(daemon).sum("ulfd_embedding_cache_ids_total", model="stamp",
                                        result="miss")
            self.assertEqual(ask(daemon) - before, 0)
        # What is no file is no reason not to serve, nor not to end.
        for make in (os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
            path = os.path.join(kept, "stamp%2Fitems.ids")
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
            make(path)
            with Daemon(repository, config, name="no_file") as daemon:
                self.assertIn("hot rows are not read ahead", daemon.log())
                ask(daemon)
        os.remove(path)
        # What cannot be read is no reason not to serve.
        with open(os.path.join(kept, "stamp%2Fitems.ids"), "w", encoding="utf-8") as file:
            file.write("1\nx\n")
        with Daemon(repository, config, name="damaged") as daemon:
            ask(daemon)
            self.assertIn("items.ids:2: \\\"x\\\" is not a 64-bit integer", daemon.log())

    def test_deltas_go_before_the_store(self):
        self.add(2, 45)
        self.load(45)
        ids = [1, 3, 5, 7, 100]
        self.assertEqual(self.scores(ids), [4, 8, 12, 16, 2])
        put, gone = (os.path.join(self.repository, "..", name) for name in ("put.txt", "gone.ids"))
        with open(put, "w", encoding="utf-8") as file:
            file.write(table_text({3: [10] * STAMP_DIM, 100: [20] * STAMP_DIM}))
        with open(gone, "w", encoding="utf-8") as file:
            file.write("5\n")
        code, out, err = ulf("table", "push", self.path(45), "--epoch=1", f"put:items={put}",
                             f"drop:items={gone}")
        self.assertEqual(code, 0, out + err)
        self.load(45)
        self.assertEqual(self.scores(ids), [4, 2 + 10 * STAMP_DIM, 2, 16, 2 + 20 * STAMP_DIM])
        page = scrape(self.daemon)
        self.assertEqual(page.sum("ulfd_table_overlay_rows", model="stamp", table="items"), 3)
        self.admin.call("Rollback", name="stamp", version=45, epoch=0)
        self.assertEqual(self.scores(ids), [4, 8, 12, 16, 2])

    def test_policies_for_ids_that_it_lacks(self):
        for version, table, score in ((51, "", 6), (52, "missing_keys: MISSING_KEY_POLICY_"
                                                        "DEFAULT_ROW default_id: 3", 6 * 4),
                                      (53, "missing_keys: MISSING_KEY_POLICY_MEAN_ROW",
                                       6 * (1 + 49 / 2))):
            self.add(6, version, table=table)
            self.load(version)
            before = scrape(self.daemon)
            self.assertAlmostEqual(self.scores([900])[0], score, places=4)
            self.assertEqual(scrape(self.daemon).sum("ulfd_embedding_missing_keys_total",
                                                     model="stamp", table="items") -
                             before.sum("ulfd_embedding_missing_keys_total", model="stamp",
                                        table="items"), 1)
        self.add(6, 54, table="missing_keys: MISSING_KEY_POLICY_ERROR")
        self.load(54)
        self.assertEqual(stamp_of(IDS, self.scores()), 6)
        with self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT,
                                 'id 900 is not in table "items"'):
            self.scores([1, 900])

    def test_the_log_tells_missing_ids(self):
        add_stamp(self.repository, 6, version=71)
        self.load(71)
        self.scores([900, 1, 901])
        line = wait_for(lambda: [line for line in self.daemon.log().splitlines()
                                 if "missing ids" in line and "version=71" in line], "the line")[0]
        for field in ("model=stamp", "table=items", "missing=2", "900 901"):
            self.assertIn(field, line)
        self.add(6, 72)
        self.load(72)
        self.scores([1, *range(900, 1000)])
        line = wait_for(lambda: [line for line in self.daemon.log().splitlines()
                                 if "missing ids" in line and "version=72" in line], "the line")[0]
        self.assertIn("missing=100", line)
        self.assertIn(" ".join(str(i) for i in range(900, 910)), line)
        self.assertNotIn("910", line)

    def test_bad_stores_are_refused_and_what_serves_stays(self):
        self.add(3, 31)
        self.load(31)

        def check(text, change):
            shutil.rmtree(self.path(32), ignore_errors=True)
            shutil.copytree(self.path(31), self.path(32))
            change(self.path(32, "items.db"))
            details = self.refused(32)
            self.assertIn("items", details)
            self.assertIn(text, details)
            self.assertEqual(stamp_of(IDS, self.scores()), 3)

        def wider(store):
            source = self.path(32, "wide")
            with open(source, "w", encoding="utf-8") as file:
                file.write("1,1,2,3,4,5\n")
            shutil.rmtree(store)
            build(source, store)

        def cut(store):
            for name in os.listdir(store):
                if name.endswith(".sst"):
                    os.truncate(os.path.join(store, name), 100)

        def other(store):
            """What another program has in RocksDB."""
            shutil.rmtree(store)
            os.mkdir(store)
            with open(os.path.join(store, "CURRENT"), "w", encoding="utf-8") as file:
                file.write("MANIFEST-000001\n")

        check("dim 5, want 4", wider)
        check("items.db", cut)
        check("items.db", other)
        check("CURRENT", shutil.rmtree)
        check("leaves", lambda store: self.rewrite('rocksdb: "items.db"', 'rocksdb: "../../x"'))
        check("neither rocksdb nor redis", lambda store: self.rewrite('rocksdb: "items.db"', ""))
        check("cache_bytes is -1", lambda store: self.rewrite('rocksdb: "items.db"',
                                                              'rocksdb: "items.db" cache_bytes: -1'))

    def rewrite(self, before, after):
        path = self.path(32, "model.textproto")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(before, after))

    def test_damaged_rows_are_late_and_others_are_not(self):
        add_stamp(self.repository, 8, version=41)
        ids = list(range(1, 2001))
        with open(self.path(41, "items"), "w", encoding="utf-8") as file:
            file.write(table_text({i: [8 * i / STAMP_DIM] * STAMP_DIM for i in ids}))
        into_rocksdb(self.path(41), ["items"], store="cache_bytes: 1")
        self.load(41)
        store = self.path(41, "items.db")
        largest = max((os.path.join(store, name) for name in os.listdir(store)
                       if name.endswith(".sst")), key=os.path.getsize)
        with open(largest, "r+b") as file:
            file.seek(os.path.getsize(largest) // 3)
            file.write(b"\xa5" * 3000)
        reply = self.client.predict(predict_request("stamp", stamp_inputs(ids), ()))
        right = [8 * (i + 1) for i in ids]
        found = outputs_of(reply)["score"].ravel().tolist()
        others = [score for score, wanted in zip(found, right) if score != wanted]
        self.assertEqual(others, [8] * reply.late_ids)
        self.assertTrue(0 < reply.late_ids < 1500, reply.late_ids)
        self.assertGreater(scrape(self.daemon).sum("ulfd_embedding_fetch_failures_total",
                                                   model="stamp"), 0)
        wait_for(lambda: "items.db: id " in self.daemon.log(), "the log names the id")
        self.add(8, 42)
        self.load(42)
        self.assertEqual(stamp_of(IDS, self.scores()), 8)
