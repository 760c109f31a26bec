"""Models whose tables lie in a real Redis Cluster: scores are those of tables in memory, or say that
rows are late, whatever happens to its nodes; no call fails, and none takes longer than its deadline.
SPDX-License-Identifier: Apache-2.0
"""
import binascii
import collections
import os
import random
import shutil
import socketserver
import statistics
import threading
import time
import unittest

import grpc
import numpy as np

from harness import env
from harness.admin import ON_REQUEST, AdminDaemonTest
from harness.certificates import Authority
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import add_shop, add_stamp, shop
from harness.loading import ulf
from harness.metrics import scrape
from harness.redis_cluster import SERVER, RedisCluster
from harness.shop import USER
from harness.small import STAMP_IDS, stamp_inputs, stamp_of

DEADLINE_S = 5.0
FETCH_TIMEOUT_MS = 1500
# Where nobody is to be late, however busy the machine is.
PATIENT = "fetch_timeout_ms: 60000"
PAUSE_MS = 200
STAMP = 3


def push(cluster, source, table, *flags):
    return ulf("table", "build", table, source, "--to=redis", f"--redis={cluster.nodes[0]}", *flags)


def into_redis(cluster, folder, tables, store="", prefix=""):
    """Moves text tables of a version into the cluster."""
    with open(os.path.join(folder, "model.textproto"), "a", encoding="utf-8") as file:
        for name in tables:
            code, out, err = push(cluster, os.path.join(folder, name), prefix + name)
            assert code == 0, out + err
            os.unlink(os.path.join(folder, name))
            file.write(f'tables {{ name: "{name}" store {{ redis {{ cluster: "main" '
                       f'table: "{prefix}{name}" }} {store} }} }}\n')


def keys_of(cluster, table):
    """Keys of the rows of a table."""
    return [key for port in cluster.masters()
            for key in cluster.on(port, "--scan", "--pattern", "{%s/*}*" % table).split()]


def used_slots(cluster, table):
    """Those with most rows first."""
    slots = collections.Counter(binascii.crc_hqx(key[1:key.index("}")].encode(), 0) % 16384
                                for key in keys_of(cluster, table))
    return [slot for slot, _ in slots.most_common()]


class Traffic:
    """Calls from several threads, each with ids of its own; every reply is checked."""

    def __init__(self, daemon, threads=3):
        self.times, self.late, self.right, self.problems = [], 0, 0, []
        self._stop, self._mu = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(daemon, seed))
                         for seed in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, daemon, seed):
        draw = random.Random(seed)
        with Client(daemon) as client:
            while not self._stop.is_set():
                ids = [draw.randrange(STAMP_IDS) for _ in range(20)]
                begin = time.monotonic()
                try:
                    reply = client.predict(predict_request("stamp", stamp_inputs(ids), ()),
                                           timeout=DEADLINE_S * env.SLOWNESS)
                except grpc.RpcError as error:
                    with self._mu:
                        self.problems.append(f"{error.code()}: {error.details()}")
                    continue
                self._check(ids, reply, time.monotonic() - begin)
                time.sleep(0.002)

    def _check(self, ids, reply, took):
        scores = outputs_of(reply)["score"].ravel().tolist()
        wrong = {i for i, score in zip(ids, scores) if score != STAMP * (i + 1)}
        with self._mu:
            self.times.append(took)
            if reply.late_ids:
                self.late += 1
                # What is late has the zero row, and every other row is right.
                if len(wrong - {0}) > reply.late_ids or any(
                        score != STAMP for i, score in zip(ids, scores) if i in wrong):
                    self.problems.append(f"late {reply.late_ids}, wrong {wrong}")
            elif wrong:
                self.problems.append(f"wrong, and nothing said: {wrong}")
            else:
                self.right += 1


@unittest.skipIf(SERVER is None, "redis-server is not installed")
class RedisTest(AdminDaemonTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = RedisCluster().__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.CONFIG = (ON_REQUEST + 'admin_address: "unix:admin.sock"\n'
                      f'redis_clusters {{ name: "main" nodes: "{cls.cluster.nodes[0]}" '
                      f'nodes: "{cls.cluster.nodes[1]}" }}\n')
        super().setUpClass()

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        folder = os.path.join(repository, "stored", "1")
        add_shop(os.path.join(repository, "..", "copy"))
        os.makedirs(os.path.dirname(folder))
        os.rename(os.path.join(repository, "..", "copy", "shop", "1"), folder)
        into_redis(cls.cluster, folder, ("user_table", "item_table"),
                   f"cache_bytes: 30000 {PATIENT}")
        # Nothing is kept in memory: every call depends on the cluster.
        cls.add(repository, STAMP, 1)

    @classmethod
    def add(cls, repository, stamp, version, prefix=""):
        add_stamp(repository, stamp, version)
        into_redis(cls.cluster, os.path.join(repository, "stamp", str(version)), ["items"],
                   f"cache_bytes: 1 fetch_timeout_ms: {FETCH_TIMEOUT_MS}", prefix)

    def finish(self, traffic):
        self.assertEqual(traffic.problems[:5], [])
        self.assertLess(max(traffic.times), DEADLINE_S * env.SLOWNESS)

    def assert_hardly_late(self, traffic):
        """A busy machine may keep a node from its answer for longer than calls wait for it."""
        self.assertGreater(traffic.right, 100 * traffic.late)

    def await_normal(self):
        """Until calls get all of their rows, many times in a row."""
        def normal():
            for _ in range(20):
                reply = self.client.predict(
                    predict_request("stamp", stamp_inputs(range(STAMP_IDS)), ()))
                if reply.late_ids:
                    return False
            return True

        wait_for(normal, "no row is late any more", 60)

    def test_scores_are_those_of_memory(self):
        for ads in (1, 7, 200):
            for seed in range(5):
                request = shop().inputs(ads, seed)
                memory = self.client.predict(predict_request("shop", request, USER))
                stored = self.client.predict(predict_request("stored", request, USER))
                self.assertEqual(stored.late_ids, 0)
                self.assertEqual(stored.missing_ids, memory.missing_ids)
                for name, values in outputs_of(memory).items():
                    np.testing.assert_array_equal(values, outputs_of(stored)[name])

    def test_a_master_is_killed(self):
        self.await_normal()
        victim = self.cluster.masters()[0]
        with Traffic(self.daemon) as traffic:
            time.sleep(0.5)
            self.cluster.kill(victim)
            wait_for(lambda: victim not in self.cluster.masters() and
                     len(self.cluster.masters()) == 3, "a replica takes over", 60, 0.2)
            self.await_normal()
            self.cluster.start(victim)
            self.cluster.wait_ok()
            time.sleep(0.5)
        self.finish(traffic)
        self.assertGreater(traffic.right, traffic.late)
        self.await_normal()

    def test_slots_move(self):
        self.await_normal()
        source, target = self.cluster.masters()[:2]
        slots = [slot for slot in used_slots(self.cluster, "items")
                 if self.cluster.owner(slot) == source][:5]
        self.assertEqual(len(slots), 5)
        with Traffic(self.daemon) as traffic:
            for there in (target, source):
                for slot in slots:
                    here, keys = self.cluster.begin_move(slot, there)
                    self.cluster.move_keys(here, there, keys)
                    self.cluster.end_move(slot, there)
        self.finish(traffic)
        self.assert_hardly_late(traffic)
        self.await_normal()

    def test_a_slot_that_stays_on_its_way(self):
        """Half of the keys of a slot are here, half there, for as long as it pleases anybody."""
        self.await_normal()
        slot = used_slots(self.cluster, "items")[0]
        target = next(port for port in self.cluster.masters() if port != self.cluster.owner(slot))
        source, keys = self.cluster.begin_move(slot, target)
        self.assertGreater(len(keys), 0)
        half = (len(keys) + 1) // 2
        self.cluster.move_keys(source, target, keys[:half])
        try:
            for _ in range(20):
                ids = list(range(STAMP_IDS)) + [999]
                reply = self.client.predict(predict_request("stamp", stamp_inputs(ids), ()))
                self.assertEqual(reply.late_ids, 0)
                self.assertEqual(reply.missing_ids, 1)
                self.assertEqual(outputs_of(reply)["score"].ravel().tolist(),
                                 [STAMP * (i + 1) for i in range(STAMP_IDS)] + [STAMP])
        finally:
            self.cluster.move_keys(source, target, keys[half:])
            self.cluster.end_move(slot, target)
        self.await_normal()

    def test_a_slow_node(self):
        self.await_normal()
        victim = self.cluster.masters()[0]
        stop = threading.Event()

        def slow():
            while not stop.is_set():
                self.cluster.on(victim, "client", "pause", PAUSE_MS, "all")
                time.sleep(PAUSE_MS / 1000 + 0.01)

        before = scrape(self.daemon).sum("ulfd_embedding_hedges_total", model="stamp")
        with Traffic(self.daemon) as normal:
            time.sleep(2)
        thread = threading.Thread(target=slow)
        with Traffic(self.daemon) as traffic:
            thread.start()
            time.sleep(4)
            stop.set()
            thread.join()
        self.finish(traffic)
        self.assert_hardly_late(traffic)
        # Every call wants rows that the node has; without a second one most would wait for it.
        if not env.SANITIZED:
            self.assertLess(statistics.median(traffic.times),
                            statistics.median(normal.times) + PAUSE_MS / 2000)
        self.assertGreater(scrape(self.daemon).sum("ulfd_embedding_hedges_total", model="stamp"),
                           before)

    def test_nobody_answers(self):
        self.await_normal()
        with Traffic(self.daemon) as traffic:
            time.sleep(0.3)
            for port in self.cluster.alive():
                self.cluster.stop(port)
            time.sleep(2)
            for port in self.cluster.alive():
                self.cluster.go_on(port)
            self.cluster.wait_ok()
            self.await_normal()
        self.finish(traffic)
        self.assertGreater(traffic.late, 0)
        wait_for(lambda: "rows are late" in self.daemon.log(), "the log says so")

    def test_rows_that_cannot_be(self):
        self.await_normal()
        key = keys_of(self.cluster, "items")[0]
        self.cluster.cli("-c", "-p", self.cluster.masters()[0], "set", key, "short")
        bad = int(key.rsplit("}", 1)[1])
        good = [i for i in range(STAMP_IDS) if i != bad]

        def logged():  # Now and then, whatever else is wrong.
            reply = self.client.predict(predict_request("stamp", stamp_inputs(good + [bad]), ()))
            self.assertEqual(reply.late_ids, 1)
            self.assertEqual(outputs_of(reply)["score"].ravel().tolist(),
                             [STAMP * (i + 1) for i in good] + [STAMP])
            log = self.daemon.log()
            return "holds 5 bytes, want a row of 16" in log and key in log

        try:
            wait_for(logged, "the log names the key", step=0.2)
        finally:
            self.add(self.repository, STAMP, 90)  # Written again.
        self.await_normal()

    def refused(self, version):
        with self.assertRaises(grpc.RpcError) as caught:
            self.admin.call("LoadModel", name="stamp", version=version)
        self.await_normal()
        return caught.exception.details()

    def test_bad_tables_are_refused_and_what_serves_stays(self):
        def version(number, before, after):
            self.add(self.repository, STAMP, number)
            path = os.path.join(self.repository, "stamp", str(number), "model.textproto")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            self.assertIn(before, text)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace(before, after))
            return self.refused(number)

        self.assertIn('table "items": Redis cluster "main", table "none": is not there',
                      version(91, 'table: "items"', 'table: "none"'))
        self.assertIn('has none of that name', version(92, '"main"', '"other"'))
        source = os.path.join(self.repository, "..", "wide")
        with open(source, "w", encoding="utf-8") as file:
            file.write("1,1,2,3,4,5\n")
        self.assertEqual(push(self.cluster, source, "wide")[0], 0)
        self.assertIn("dim 5, want 4", version(93, 'table: "items"', 'table: "wide"'))
        code, _, err = push(self.cluster, source, "items")
        self.assertEqual(code, 1)
        self.assertIn("is there with rows of 4 values, fp32, not of 5, fp32", err)
        code, _, err = push(self.cluster, os.path.join(self.repository, "shop", "1", "item_table"), "item_table",
                            "--partitions=7")
        self.assertEqual(code, 1)
        self.assertIn("is there with 256 partitions, not 7", err)
        # Nothing of it is written.
        with open(source, "w", encoding="utf-8") as file:
            file.write("1,9,9,9,9\n2,9,9,9,9\n2,9,9,9,9\n")
        code, _, err = push(self.cluster, source, "items")
        self.assertEqual(code, 1)
        self.assertIn("id 2 has two rows", err)
        reply = self.client.predict(predict_request("stamp", stamp_inputs([1, 2]), ()))
        self.assertEqual(stamp_of([1, 2], outputs_of(reply)["score"].ravel().tolist()), STAMP)
        self.cluster.cli("-c", "-p", self.cluster.ports[0], "set", "{wide}", "garbage")
        self.assertIn('key "{wide}"', version(94, 'table: "items"', 'table: "wide"'))


    def test_rows_in_memory_outlast_a_reload_after_a_failure(self):
        path = os.path.join(self.repository, "kept", "%d")
        add_stamp(self.repository, STAMP, name="kept")
        into_redis(self.cluster, path % 1, ["items"], PATIENT, "kept_")

        def ask(*ids):
            """Late ids, and those that were not in memory."""
            before, reply = (call() for call in (
                lambda: scrape(self.daemon), lambda: self.client.predict(
                    predict_request("kept", stamp_inputs(list(ids)), ()))))
            misses = (page.sum("ulfd_embedding_cache_ids_total", model="kept", result="miss")
                      for page in (scrape(self.daemon), before))
            return reply.late_ids, next(misses) - next(misses)

        self.admin.call("LoadModel", name="kept", version=1)
        self.assertEqual(ask(1, 2), (0, 2))
        (key,) = [key for key in keys_of(self.cluster, "kept_items") if key.endswith("}5")]
        self.cluster.cli("-c", "-p", self.cluster.ports[0], "set", key, "garbage")
        self.assertEqual(ask(5), (1, 1))
        shutil.copytree(path % 1, path % 2)
        with open(os.path.join(path % 2, "weights.pb"), "a", encoding="utf-8") as file:
            file.write("# Only the weights are others.\n")
        self.admin.call("LoadModel", name="kept", version=2)
        self.assertEqual(ask(1, 2), (0, 0))

    def test_a_table_that_is_spread_anew(self):
        """The same rows, under other keys."""
        path = os.path.join(self.repository, "spread", "%d")
        add_stamp(self.repository, STAMP, name="spread")
        items = os.path.join(self.repository, "..", "spread_items")
        shutil.copy(os.path.join(path % 1, "items"), items)
        into_redis(self.cluster, path % 1, ["items"], f"cache_bytes: 1 {PATIENT}", "spread_")
        self.admin.call("LoadModel", name="spread", version=1)
        for key in keys_of(self.cluster, "spread_items") + ["{spread_items}"]:
            self.cluster.cli("-c", "-p", self.cluster.ports[0], "del", key)
        code, out, err = push(self.cluster, items, "spread_items", "--partitions=7")
        self.assertEqual(code, 0, out + err)
        shutil.copytree(path % 1, path % 2)
        self.admin.call("LoadModel", name="spread", version=2)
        reply = self.client.predict(predict_request("spread", stamp_inputs([1, 2]), ()))
        self.assertEqual(reply.late_ids, 0)
        self.assertEqual(stamp_of([1, 2], outputs_of(reply)["score"].ravel().tolist()), STAMP)

    def test_offline_commands_read_the_cluster(self):
        stored, memory = (os.path.join(self.repository, name) for name in ("stored", "shop"))
        where = f"--redis={self.cluster.nodes[0]}"
        inputs = os.path.join(self.repository, "..", "inputs.npz")
        np.savez(inputs, **shop().inputs(7, 1))
        scores = []
        for model, flags in ((memory, ()), (stored, (where,))):
            scores.append(inputs + str(len(scores)))
            code, out, err = ulf("score", model, f"--inputs={inputs}", f"--outputs={scores[-1]}",
                                 *flags)
            self.assertEqual(code, 0, out + err)
        self.assertEqual(ulf("compare", *scores, "--tolerance=0")[0], 0)
        code, _, err = ulf("score", stored, f"--inputs={inputs}")
        self.assertEqual(code, 1)
        self.assertIn("by --redis", err)
        self.assertEqual(ulf("inspect", stored, where)[0], 0)
        rows = os.path.join(self.repository, "..", "rows")
        with open(rows, "w", encoding="utf-8") as file:
            file.write("1,1,2,3\n")
        push_delta = ("table", "push", stored, "--epoch=1", f"put:item_table={rows}")
        code, _, err = ulf(*push_delta, where)
        self.assertEqual(code, 1)
        self.assertIn("rows of 3 values, want", err)


class Garbage(socketserver.StreamRequestHandler):
    def handle(self):
        self.request.recv(1000)
        self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@unittest.skipIf(SERVER is None, "redis-server is not installed")
class RedisSecurityTest(AdminDaemonTest):
    """TLS with certificates on both sides, a user with a password, and nodes that are none."""

    PASSWORD = "long and secret"
    CONFIG_VERSIONS = 'models { name: "stamp" version_policy { specific { versions: 1 } } }\n'

    @classmethod
    def setUpClass(cls):
        folder = env.scratch("redis_security")
        authority = Authority(folder)
        cls.ca, (certificate, key) = authority.certificate, authority.issue("redis")
        password = cls.write(folder, "password", cls.PASSWORD)
        wrong = cls.write(folder, "wrong", "something else")
        tls = [f"tls-cert-file {certificate}", f"tls-key-file {key}", f"tls-ca-cert-file {cls.ca}",
               "tls-cluster yes", "tls-replication yes", "masterauth " + repr(cls.PASSWORD),
               f'user default on >"{cls.PASSWORD}" ~* &* +@all']
        cls.cluster = RedisCluster(
            [line.replace("'", '"') for line in tls], tls=True,
            login=["--tls", "--cacert", cls.ca, "--cert", certificate, "--key", key,
                   "--no-auth-warning", "-a", cls.PASSWORD]).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.garbage = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Garbage)
        threading.Thread(target=cls.garbage.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.garbage.shutdown)
        node = cls.cluster.nodes[0]
        secure = (f'tls {{ ca_file: "{cls.ca}" certificate_file: "{certificate}" '
                  f'key_file: "{key}" }}')
        cls.flags = [f"--redis_password_file={password}", f"--redis_ca={cls.ca}",
                     f"--redis_certificate={certificate}", f"--redis_key={key}"]
        good = f'nodes: "{node}" password_file: "{password}" {secure}'
        cls.CONFIG = ON_REQUEST + 'admin_address: "unix:admin.sock"\n' + "".join(
            f'redis_clusters {{ name: "{name}" {text} }}\n' for name, text in {
                "main": good,
                "user": f'username: "default" {good}',
                "wrong": good.replace(password, wrong),
                "plain": f'nodes: "{node}" password_file: "{password}"',
                "garbage": f'nodes: "127.0.0.1:{cls.garbage.server_address[1]}"',
                "nobody": 'nodes: "127.0.0.1:1"',
            }.items()) + cls.CONFIG_VERSIONS
        super().setUpClass()

    @staticmethod
    def write(folder, name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        return path

    @classmethod
    def fill(cls, repository):
        for version, cluster in enumerate(("main", "user", "wrong", "plain", "garbage", "nobody")):
            add_stamp(repository, 5, version + 1)
            folder = os.path.join(repository, "stamp", str(version + 1))
            if version == 0:
                code, out, err = push(cls.cluster, os.path.join(folder, "items"), "items",
                                      *cls.flags)
                assert code == 0, out + err
            cls.write(folder, "model.textproto", 'tables { name: "items" store { redis { cluster: '
                      f'"{cluster}" table: "items" }} cache_bytes: 1 {PATIENT} }} }}')

    def test_who_may_come_in(self):
        for version, text in ((1, None), (2, None), (3, "WRONGPASS"), (4, "Redis node"),
                              (5, "no reply of Redis"), (6, "127.0.0.1:1")):
            if text is None:
                self.admin.call("LoadModel", name="stamp", version=version)
            else:
                with self.assertRaises(grpc.RpcError) as caught:
                    self.admin.call("LoadModel", name="stamp", version=version)
                self.assertIn(text, caught.exception.details())
                self.assertIn('table "items"', caught.exception.details())
                self.assertNotIn(self.PASSWORD, caught.exception.details())
            reply = self.client.predict(predict_request("stamp", stamp_inputs([7]), ()))
            self.assertEqual(outputs_of(reply)["score"].ravel().tolist(), [40])
            self.assertEqual(reply.late_ids, 0)
