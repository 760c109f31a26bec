"""Deltas of tables under constant calls: no call fails, every reply is of one epoch, memory stays
flat, and a killed daemon comes back with the last complete epoch.  ULFD_DELTAS=DELTAS,ROWS makes
the load longer and the table larger (tests/e2e/README.md).
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import random
import shutil
import subprocess
import time

import grpc
import numpy as np

from harness import env, modelfiles
from harness.admin import AdminDaemonTest
from harness.callers import Callers
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.loading import command, ulf
from harness.metrics import scrape
from harness.small import STAMP_DIM, stamp_files, stamp_inputs

DELTAS, ROWS = (int(n) for n in os.environ.get("ULFD_DELTAS", "40,100000").split(","))
ROWS_OF_DELTA = 10000
IDS = [1, 3, 7, 11, 9999]  # Every delta changes their rows.
BIAS = 777.0
DEFAULT_WATCH = "watch { settle_time_ms: 300 }\nshutdown { drain_delay_ms: 50 }\n"


def rows_of(ids, epoch):
    """Scores are BIAS + epoch + id / 4096: exact in float32, and their epoch can be told."""
    return np.repeat((epoch + np.asarray(ids) / 4096.0)[:, None] / STAMP_DIM, STAMP_DIM,
                     axis=1).astype(np.float32)


def epoch_of(ids, scores):
    """The one epoch that explains every score, or None."""
    epochs = {float(s) - BIAS - i / 4096.0 for i, s in zip(ids, scores)}
    return epochs.pop() if len(epochs) == 1 else None


def write_model(path, folder, rows=1000, mapped=False):
    files = stamp_files(BIAS)
    del files["items"]
    modelfiles.write_version(path, files, success=False)
    keys = np.arange(rows, dtype=np.int64)
    npz = os.path.join(folder, "base.npz")
    np.savez(npz, keys=keys, rows=rows_of(keys, 0))
    items = os.path.join(path, "items")
    code, out, err = ulf("table", "build", items + ".new", npz, timeout=1200)
    assert code == 0, out + err
    if not mapped:
        code, out, err = ulf("table", "export", items + ".new", items, timeout=1200)
        assert code == 0, out + err
        os.remove(items + ".new")
    else:
        os.rename(items + ".new", items)
    modelfiles.write(os.path.join(path, "_SUCCESS"), "")


class Pusher:
    """Writes deltas of the first rows of "items"."""

    def __init__(self, version, folder, rows=ROWS_OF_DELTA):
        self.version, self.folder, self.rows = version, folder, rows
        self.random = np.random.RandomState(3)

    def push(self, epoch, total, *more):
        ids = np.unique(np.concatenate([IDS, self.random.randint(0, total, self.rows)]))
        npz = os.path.join(self.folder, "delta.npz")
        np.savez(npz, keys=ids, rows=rows_of(ids, epoch))
        code, out, err = ulf("table", "push", self.version, f"--epoch={epoch}",
                             f"put:items={npz}", *more)
        assert code == 0, out + err


class DeltasTest(AdminDaemonTest):
    """Each test has a version of its own, above those of the tests before it."""

    CONFIG = FAST + 'admin_address: "unix:admin.sock"\n'
    version = 1

    @classmethod
    def fill(cls, repository):
        cls.folder = env.scratch("deltas")
        write_model(os.path.join(repository, "stamp", "1"), cls.folder)

    def setUp(self):
        DeltasTest.version += 1
        self.path = os.path.join(self.repository, "stamp", str(self.version))
        self.pusher = Pusher(self.path, self.folder, rows=100)

    def publish(self, mapped):
        write_model(self.path, self.folder, mapped=mapped)
        wait_for(lambda: self.status() and self.status().serving, "the version serves")

    def status(self):
        return self.client.version("stamp", self.version)

    def epoch(self):
        reply = self.client.predict(predict_request("stamp", stamp_inputs(IDS[:4]), ()))
        return epoch_of(IDS[:4], outputs_of(reply)["score"].ravel().tolist())

    def wait_epoch(self, epoch):
        wait_for(lambda: self.epoch() == epoch, f"epoch {epoch}; log:\n{self.daemon.log()[-2000:]}")

    def wait_error(self, text):
        wait_for(lambda: text in self.status().error, f"{text!r}; log: {self.daemon.log()[-2000:]}")

    def push(self, epoch, *more):
        self.pusher.rows = 100
        ids = np.array(IDS[:4])
        npz = os.path.join(self.folder, "delta.npz")
        np.savez(npz, keys=ids, rows=rows_of(ids, epoch))
        code, out, err = ulf("table", "push", self.path, f"--epoch={epoch}", f"put:items={npz}",
                             *more)
        self.assertEqual(code, 0, out + err)

    def test_deltas_are_applied_shown_and_undone(self):
        for mapped in (False, True):
            with self.subTest(mapped=mapped):
                self.setUp()
                self.publish(mapped)
                self.push(3, "--event_time=2026-01-31T12:00:00Z")
                self.wait_epoch(3)
                self.push(4, "--event_time=2026-01-31T12:01:00Z")
                self.wait_epoch(4)
                metrics = scrape(self.daemon)
                where = {"model": "stamp", "version": str(self.version)}
                self.assertEqual(metrics.sum("ulfd_model_epoch", **where), 4)
                self.assertEqual(metrics.sum("ulfd_model_event_timestamp_seconds", **where),
                                 1769860860)
                self.assertEqual(metrics.sum("ulfd_table_overlay_rows", table="items", **where), 8)
                self.assertGreater(metrics.sum("ulfd_table_rows", table="items", **where), 0)
                self.assertGreater(metrics.sum("ulfd_table_overlay_bytes", **where), 0)
                page = json.loads(self.daemon.http("/statusz")[1])
                (version,) = [v for m in page["models"] for v in m["versions"]
                              if v["version"] == str(self.version)]
                self.assertEqual(version["epoch"], "4")
                self.assertEqual(version["event_time"], "2026-01-31T12:01:00Z")
                for epoch in (3, 0, 4):
                    code, out, err = ulf("admin", self.daemon.admin_target, "rollback", "stamp",
                                         str(self.version), f"--epoch={epoch}")
                    self.assertEqual(code, 0, out + err)
                    self.assertEqual(self.epoch(), epoch)
                with self.assert_refused(grpc.StatusCode.NOT_FOUND, "no epoch 5"):
                    self.admin.call("Rollback", name="stamp", version=self.version, epoch=5)
                self.admin.call("Rollback", name="stamp", version=self.version, epoch=3)
                self.push(9, "--base_epoch=4")
                time.sleep(0.3)  # Several looks: it stays out.
                self.assertEqual(self.epoch(), 3)
                self.admin.call("LoadModel", name="stamp", version=self.version)
                self.wait_epoch(9)

    def test_dropped_rows_and_weights_change_with_the_tables(self):
        self.publish(mapped=True)
        gone = os.path.join(self.folder, "gone.ids")
        modelfiles.write(gone, "5\n6\n")
        weights = os.path.join(self.path, "weights.pb")
        with open(weights, encoding="utf-8") as file:
            text = file.read()
        other = os.path.join(self.folder, "other.pb")
        self.assertIn("777", text)
        modelfiles.write(other, text.replace("777", "1289"))
        self.push(1, f"drop:items={gone}", f"weights:{other}")
        self.wait_epoch(513)  # Epoch 1 of the rows, and 512 more by the weights.
        reply = self.client.predict(predict_request("stamp", stamp_inputs([5, 6, 8]), ()))
        scores = outputs_of(reply)["score"].ravel().tolist()
        self.assertEqual(scores, [1289, 1289, 1289 + 8 / 4096])

    def test_bad_deltas_are_refused_and_what_serves_stays(self):
        self.publish(mapped=False)
        self.push(2)
        self.wait_epoch(2)
        self.push(3)
        self.wait_epoch(3)
        deltas = os.path.join(self.path, "deltas")

        def copy(epoch, base, change=lambda folder: None):
            folder = os.path.join(deltas, str(epoch))
            aside = os.path.join(deltas, ".aside")
            shutil.copytree(os.path.join(deltas, "3"), aside)
            manifest = os.path.join(aside, "delta.textproto")
            with open(manifest, encoding="utf-8") as file:
                text = file.read()
            modelfiles.write(manifest, text.replace("base_epoch: 2", f"base_epoch: {base}"))
            change(aside)
            os.rename(aside, folder)
            return folder

        def truncate(folder):
            path = os.path.join(folder, "put1.ulft")
            os.truncate(path, os.path.getsize(path) - 1)

        def unknown(folder):
            path = os.path.join(folder, "delta.textproto")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            modelfiles.write(path, text.replace('"items"', '"others"'))

        for epoch, base, change, wanted in (
                (1, 0, lambda folder: None, "epoch 3 is applied already, this one comes too late"),
                (5, 4, lambda folder: None, "follows epoch 4, and 3 is the last one"),
                (6, 3, truncate, "/deltas/6/put1.ulft"),
                (7, 3, unknown, 'table "others"')):
            copy(epoch, base, change)
            self.wait_error(wanted)
            self.assertEqual(self.epoch(), 3)
            shutil.rmtree(os.path.join(deltas, str(epoch)))
        os.utime(os.path.join(deltas, "3", "_SUCCESS"))
        self.wait_error("epoch 3 is applied already, and does not change")
        self.assertTrue(self.status().serving)
        self.push(8)
        self.wait_epoch(8)
        self.assertEqual(self.status().error, "")

    def test_tools_without_a_daemon_take_deltas(self):
        self.publish(mapped=True)
        self.push(3)
        self.push(5)
        inputs, outputs = (os.path.join(self.folder, name) for name in ("in.npz", "out.npz"))
        np.savez(inputs, **stamp_inputs(IDS[:4]))

        def score(*flags):
            code, out, err = ulf("score", self.path, f"--inputs={inputs}", f"--outputs={outputs}",
                                 *flags)
            self.assertEqual(code, 0, out + err)
            with np.load(outputs) as found:
                return epoch_of(IDS[:4], found["score"].ravel().tolist()), err

        self.assertEqual(score(), (5, ""))
        self.assertEqual([score(f"--epoch={epoch}")[0] for epoch in (0, 3, 5)], [0, 3, 5])
        code, out, err = ulf("score", self.path, f"--inputs={inputs}", "--epoch=4")
        self.assertEqual(code, 1, out)
        self.assertIn("no complete epoch 4", err)
        self.push(7)
        manifest = os.path.join(self.path, "deltas", "7", "delta.textproto")
        with open(manifest, encoding="utf-8") as file:
            text = file.read()
        modelfiles.write(manifest, text.replace("base_epoch: 5", "base_epoch: 6"))
        found, err = score()
        self.assertEqual(found, 5)
        self.assertIn("deltas/7/delta.textproto: follows epoch 6, and 5 is the last one", err)
        code, out, err = ulf("inspect", self.path, "--json")
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["epoch"], 5)
        self.assertEqual([table["overlay_rows"] for table in json.loads(out)["tables"]], [8])
        self.assertIn("epoch    3\n", ulf("inspect", self.path, "--epoch=3")[1])

    def test_diff_makes_what_push_takes(self):
        self.publish(mapped=True)
        other = os.path.join(self.folder, "other.npz")
        keys = np.arange(4, 1200)
        rows = rows_of(keys, 0)
        rows[:10] = rows_of(keys[:10], 7)
        np.savez(other, keys=keys, rows=rows)
        table = os.path.join(self.folder, "other.ulft")
        self.assertEqual(ulf("table", "build", table, other)[0], 0)
        prefix = os.path.join(self.folder, "difference")
        code, out, err = ulf("table", "diff", os.path.join(self.path, "items"), table, prefix)
        self.assertEqual(code, 0, err)
        self.assertEqual(out, "200 rows are new, 10 have other values, 4 are gone\n"
                              f"written: {prefix}.ulft {prefix}.ids\n")
        code, out, err = ulf("table", "push", self.path, "--epoch=1", f"put:items={prefix}.ulft",
                             f"drop:items={prefix}.ids")
        self.assertEqual(code, 0, err)
        wait_for(lambda: self.status().epoch == 1, "epoch 1")
        ids = [0, 3, 4, 13, 14, 999, 1000, 1199]
        reply = self.client.predict(predict_request("stamp", stamp_inputs(ids), ()))
        wanted = [BIAS + (0 if i < 4 else (7 if i < 14 else 0) + i / 4096) for i in ids]
        self.assertEqual(outputs_of(reply)["score"].ravel().tolist(), wanted)
        code, out, err = ulf("table", "push", self.path, "--epoch=1", f"put:items={prefix}.ulft")
        self.assertEqual(code, 1)
        self.assertIn("deltas/1 exists", err)
        # What the daemon would refuse is not pushed.
        wide = os.path.join(self.folder, "wide.npz")
        np.savez(wide, keys=keys, rows=np.zeros((len(keys), rows.shape[1] + 1), np.float32))
        for part, wanted in ((f"put:others={prefix}.ulft", "the model has no such table"),
                             (f"put:items={wide}", f"values, want {rows.shape[1]}")):
            code, out, err = ulf("table", "push", self.path, "--epoch=2", part)
            self.assertEqual(code, 1)
            self.assertIn(wanted, err)
        self.assertFalse(os.path.exists(os.path.join(self.path, "deltas", "2")))


class DeltasUnderLoadTest(AdminDaemonTest):
    CONFIG = DEFAULT_WATCH + 'admin_address: "unix:admin.sock"\n'
    WAIT_READY = False

    @classmethod
    def fill(cls, repository):
        cls.folder = env.scratch("deltas_load")
        cls.path = os.path.join(repository, "stamp", "1")
        write_model(cls.path, cls.folder, rows=ROWS, mapped=ROWS > 1000000)

    def test_no_call_fails_and_every_reply_is_of_one_epoch(self):
        wait_for(lambda: self.daemon.http("/readyz")[0] == 200, "the table is loaded", 120)
        pusher = Pusher(self.path, self.folder)
        pushed, sizes, slow = {}, [], {}
        with Callers(self.daemon, IDS, epoch_of, threads=2, ordered=True) as callers:
            slow["without"] = self.push_elsewhere(callers)
            first_call = len(callers.seconds)
            for epoch in range(1, DELTAS + 1):
                pusher.push(epoch, ROWS)
                pushed[epoch] = time.monotonic()
                wait_for(lambda: callers.failures or float(epoch) in callers.first,
                         f"epoch {epoch}; log:\n{self.daemon.log()[-2000:]}", 60)
                self.assertEqual(callers.failures[:3], [])
                sizes.append(self.daemon.resident_bytes())
            slow["with"] = callers.seconds[first_call:]
            slow["without"] += self.push_elsewhere(callers)
        self.assertEqual(callers.failures[:3], [])
        late = sorted(callers.first[float(e)] - pushed[e] for e in pushed)
        metrics = scrape(self.daemon)
        folds = metrics.sum("ulfd_model_folds_total", model="stamp")
        size = max(sizes[-len(sizes) // 4:])
        middle = max(sizes[len(sizes) // 4:len(sizes) // 2])
        p99 = {name: sorted(seconds)[len(seconds) * 99 // 100] * 1e3
               for name, seconds in slow.items()}
        print(f"\n{DELTAS} deltas over {ROWS} rows: {callers.calls} calls, 0 failed, p99 "
              f"{p99['with']:.1f} ms with deltas, {p99['without']:.1f} without, epochs seen after "
              f"{late[len(late) // 2]:.2f} s, the latest after {late[-1]:.2f}, {folds:.0f} folds, "
              f"resident MB: {sizes[0] >> 20} first, "
              f"{middle >> 20} second quarter, {size >> 20} last quarter")
        self.assertLess(late[-1], 2 * env.SLOWNESS)
        if DELTAS * ROWS_OF_DELTA > ROWS // 4:  # Twice what is folded.
            self.assertGreaterEqual(folds, 1)
        self.assertLessEqual(metrics.sum("ulfd_table_overlay_rows", table="items"),
                             0.125 * ROWS + 5 * ROWS_OF_DELTA)
        self.assertLess(size, 1.1 * middle + (16 << 20))

    def push_elsewhere(self, callers):
        """What calls take while as much is pushed to the same version that no daemon sees: a push
        loads the version to check itself against it."""
        elsewhere = os.path.join(self.folder, "elsewhere")
        shutil.copytree(self.path, elsewhere, copy_function=os.link,
                        ignore=shutil.ignore_patterns("deltas"))
        pusher = Pusher(elsewhere, self.folder)
        first_call = len(callers.seconds)
        for _ in range(max(4, DELTAS // 10)):
            pusher.push(1, ROWS)
            shutil.rmtree(os.path.join(elsewhere, "deltas"))
            time.sleep(0.5)  # About as long as a daemon takes to serve one.
        shutil.rmtree(elsewhere)
        return callers.seconds[first_call:]


class KilledDaemonTest(AdminDaemonTest):
    """Kills a daemon of its own again and again."""

    CONFIG = FAST + 'admin_address: "unix:admin.sock"\n'

    @classmethod
    def fill(cls, repository):
        cls.folder = env.scratch("deltas_killed")
        write_model(os.path.join(repository, "stamp", "1"), cls.folder, rows=50000, mapped=True)

    def test_a_killed_daemon_has_the_last_complete_epoch(self):
        path = os.path.join(self.repository, "stamp", "1")
        pusher = Pusher(path, self.folder, rows=9000)
        source = random.Random(5)
        epoch = 0
        request = predict_request("stamp", stamp_inputs(IDS), ())
        for _ in range(6):
            daemon = Daemon(self.repository, config=self.CONFIG, name="killed")
            with Client(daemon) as client:
                scores = outputs_of(client.predict(request))["score"].ravel().tolist()
                self.assertEqual(epoch_of(IDS, scores), epoch)
                for _ in range(3):
                    epoch += 1
                    pusher.push(epoch, 50000)
                # A push that is killed with it leaves nothing that counts.
                npz = os.path.join(self.folder, "delta.npz")
                push = subprocess.Popen(command("table", "push", path, f"--epoch={epoch + 1}",
                                                f"put:items={npz}"), stdout=subprocess.DEVNULL)
                time.sleep(source.random() * 0.3)
                push.kill()
                daemon.kill()
                push.wait()
            if os.path.exists(os.path.join(path, "deltas", str(epoch + 1), "_SUCCESS")):
                # It was whole: of the same rows as the one before.
                shutil.rmtree(os.path.join(path, "deltas", str(epoch + 1)))
        names = [name for name in os.listdir(path) if name.endswith(".ulft")]
        self.assertEqual(names, [])
