"""What operators change while calls go on: versions, labels, the configuration; and what the server
refuses to publish.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import os
import shutil
import signal
import threading

import grpc

from harness.admin import ON_REQUEST, AdminDaemonTest
from harness.callers import Callers, together
from harness.clients import outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import DaemonTest, add_stamp
from harness.loading import ulf
from harness.metrics import scrape
from harness.modelfiles import write_version
from harness.small import stamp_files, stamp_inputs, stamp_of
from proto import admin_pb2 as admin_pb
from proto import recording_pb2 as recording_pb
from test_reload import IDS

Outcome = admin_pb.VersionChange.Outcome


def golden(stamp, ids=(0, 5, 9)):
    """A recorded request, with the scores that the stamp gives."""
    request = predict_request("stamp", stamp_inputs(list(ids)), ())
    record = recording_pb.Recording(api=recording_pb.API_NATIVE, model="stamp", ads=len(ids),
                                    request=request.SerializeToString())
    record.outputs.add(name="score", shape=[len(ids), 1],
                       values=[stamp * (i + 1) for i in ids])
    return record.SerializeToString()

LASTS = ("This lasts until the daemon ends or ReloadConfig is called; labels and "
         "version_policy in the configuration file last, and with state_file this would.\n")
STAYS_OUT = ("The versions above stay out until their content changes, until LoadModel or a "
             "roll-back names them, or until the daemon ends; with state_file not even then.\n")


class ChangesTest(AdminDaemonTest):
    """The admin service listens on a Unix socket."""

    CONFIG = ON_REQUEST + 'admin_address: "unix:admin.sock"\n'

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    def setUp(self):
        """Version 1 serves, and there is no other."""
        folder = os.path.join(self.repository, "stamp")
        for version in os.listdir(folder):
            if version != "1":
                shutil.rmtree(os.path.join(folder, version))
        self.call("LoadModel", name="stamp", version=1)
        self.configure("")

    def call(self, method, **fields):
        return self.admin.call(method, **fields)

    def refused(self, method, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            self.call(method, **fields)
        return caught.exception.code(), caught.exception.details()

    def configure(self, models, **fields):
        """Serves these models besides the repository."""
        self.daemon.write_config(self.CONFIG + models)
        return self.call("ReloadConfig", **fields)

    def ulf(self, *args):
        code, out, err = ulf("admin", self.daemon.admin_target, *args)
        return code, out + err

    def stamp(self, model="stamp", **spec):
        request = predict_request(model, stamp_inputs(IDS), ())
        for name, value in spec.items():
            setattr(request.model, name, value)
        scores = outputs_of(self.client.predict(request))["score"]
        return stamp_of(IDS, scores.ravel().tolist())

    def outcomes(self, reply):
        return [(v.version, Outcome.Name(v.outcome)[8:]) for v in reply.versions]

    def test_load_label_unload(self):
        add_stamp(self.repository, 2, version=2)
        with Callers(self.daemon, IDS, stamp_of, threads=2) as callers:
            self.assertEqual(self.outcomes(self.call("LoadModel", name="stamp", version=2)),
                             [(2, "LOADED"), (1, "UNLOADED")])
            self.assertEqual(self.stamp(), 2)
            add_stamp(self.repository, 3, version=3)
            reply = self.call("SetLabel", name="stamp", label="next", version=3)
            self.assertEqual(self.outcomes(reply)[0], (3, "LOADED"))
            self.assertFalse(reply.HasField("previous_version"))
            self.assertEqual(self.stamp(label="next"), 3)
            code, text = self.refused("UnloadModel", name="stamp", version=3)
            self.assertEqual(code, grpc.StatusCode.FAILED_PRECONDITION)
            self.assertIn('label "next" names version 3', text)
            self.call("LoadModel", name="stamp", version=1)
            self.call("SetLabel", name="stamp", label="next")
            self.assertEqual(self.outcomes(self.call("UnloadModel", name="stamp", version=3)),
                             [(3, "UNLOADED")])
            self.assertIn(self.stamp(), (1, 2))
        self.assertEqual(callers.failures, [])
        self.assertEqual(self.refused("LoadModel", name="stamp", version=9)[0],
                         grpc.StatusCode.NOT_FOUND)
        self.assertEqual(self.refused("LoadModel", name="")[0],
                         grpc.StatusCode.INVALID_ARGUMENT)
        for label in ("", "a\nb", "x" * 256, ".hidden"):
            code, text = self.refused("SetLabel", name="stamp", label=label, version=1)
            self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn("want 1 to 255 letters", text)

    def test_sighup_takes_over_the_configuration(self):
        add_stamp(self.repository, 2, version=2)
        self.call("ReloadRepository")
        self.call("SetLabel", name="stamp", label="mine", version=1)
        models = 'models { name: "stamp" labels { key: "new" value: %d } }'
        hang_up = functools.partial(self.daemon.process.send_signal, signal.SIGHUP)
        with Callers(self.daemon, IDS, stamp_of, threads=2) as callers:
            # The same file: what an operator changed stays.
            hang_up()
            self.call("ReloadRepository")
            self.assertEqual(self.stamp(label="mine"), 1)
            self.daemon.write_config(self.CONFIG + models % 2)
            hang_up()
            wait_for(lambda: "is in force" in self.daemon.log(), "the configuration")
            self.assertEqual(self.stamp(label="new"), 2)
            self.daemon.write_config(self.CONFIG + models % 9)
            hang_up()
            wait_for(lambda: "is refused" in self.daemon.log(), "the refusal")
            self.assertEqual(self.stamp(label="new"), 2)
        self.assertEqual(callers.failures, [])

    def test_rollback(self):
        add_stamp(self.repository, 2, version=2)
        with Callers(self.daemon, IDS, stamp_of, threads=2) as callers:
            self.call("ReloadRepository")
            self.assertEqual(self.stamp(), 2)
            reply = self.call("Rollback", name="stamp")
            self.assertEqual((reply.from_version, reply.to_version), (2, 1))
            self.assertEqual(self.stamp(), 1)
            self.call("ReloadRepository")
            self.assertEqual(self.stamp(), 1)
            status = self.client.version("stamp", 2)
            self.assertEqual(status.quarantine.reason, "rolled back by an operator")
            self.assertEqual(len(status.quarantine.content_hash), 32)
            self.assertEqual(scrape(self.daemon).sum("ulfd_model_quarantined", model="stamp",
                                                     version="2"), 1)
            self.call("LoadModel", name="stamp", version=2)
            self.assertEqual(self.stamp(), 2)
            self.assertFalse(self.client.version("stamp", 2).HasField("quarantine"))
        self.assertEqual(callers.failures, [])
        self.assertEqual(set(callers.first), {1, 2})

    def test_two_loads_at_once_are_one(self):
        add_stamp(self.repository, 2, version=2)
        generation = self.call("GetStatus").generation
        seen = together(lambda _: self.outcomes(self.call("LoadModel", name="stamp", version=2))[0][1], 4)
        self.assertEqual(sorted(seen), ["ALREADY_SERVING"] * 3 + ["LOADED"])
        loads = self.daemon.log().count("model published")
        self.assertGreater(self.call("GetStatus").generation, generation)
        self.call("LoadModel", name="stamp", version=2)
        self.assertEqual(self.daemon.log().count("model published"), loads)

    def test_golden_scores_guard_publication(self):
        def publish(stamp, version, **files):
            write_version(os.path.join(self.repository, "stamp", str(version)),
                          {**stamp_files(stamp), **files})

        os.makedirs(os.path.join(self.repository, "stamp", "2", "warmup"))
        publish(2, 2, **{"warmup/golden.pb": golden(3)})
        with Callers(self.daemon, IDS, stamp_of, threads=2) as callers:
            code, text = self.refused("LoadModel", name="stamp", version=2)
            self.assertEqual(code, grpc.StatusCode.FAILED_PRECONDITION)
            self.assertIn("golden.pb record 1: output \"score\" row 0 column 0: found 2, "
                          "recorded 3, tolerance 0.0001", text)
            self.assertEqual(self.stamp(), 1)
            self.assertTrue(self.client.version("stamp", 2).HasField("quarantine"))
            # As good as the manifest wants it.
            publish(2, 2, **{"warmup/golden.pb": golden(2.01),
                             "model.textproto": "golden_tolerance: 0.02"})
            self.call("LoadModel", name="stamp", version=2)
            self.assertEqual(self.stamp(), 2)
        self.assertEqual(callers.failures, [])

        os.makedirs(os.path.join(self.repository, "stamp", "3", "warmup"))
        publish(3, 3, **{"warmup/bad.pb": b"\xff\xff"})
        self.assertIn("neither a file of the recorder", self.refused(
            "LoadModel", name="stamp", version=3)[1])
        publish(3, 3, **{"warmup/bad.pb": golden(3, ids=(0, 3)).replace(b"score", b"scorn")})
        self.assertIn('recorded output "scorn" is no output', self.refused(
            "LoadModel", name="stamp", version=3)[1])

    def test_reload_config_is_all_or_nothing(self):
        for name in ("left", "right"):
            add_stamp(os.path.join(self.daemon.dir, "other"), 7, name=name)
        base = os.path.join(self.daemon.dir, "other")
        both = (f'models {{ name: "left" base_path: "{base}/left" }}\n'
                f'models {{ name: "right" base_path: "{base}/right" }}\n')
        broken = os.path.join(base, "right", "1", "items")
        with open(broken, "r+b") as file:
            good = file.read()
            file.truncate(20)
        with Callers(self.daemon, IDS, stamp_of, threads=2) as callers:
            generation = self.call("GetStatus").generation
            reply = self.configure(both)
            self.assertFalse(reply.applied)
            left, right = reply.models
            self.assertEqual((left.name, left.error), ("left", ""))
            self.assertEqual(self.outcomes(left), [(1, "DISCARDED")])
            self.assertIn("items:", right.error)
            self.assertEqual(reply.generation, generation)
            with self.assert_refused(grpc.StatusCode.NOT_FOUND):
                self.stamp("left")

            with open(broken, "wb") as file:
                file.write(good)
            self.assertTrue(self.configure(both, dry_run=True).applied)
            with self.assertRaises(grpc.RpcError):
                self.stamp("left")
            reply = self.configure(both)
            self.assertTrue(reply.applied, reply)
            self.assertEqual((self.stamp("left"), self.stamp("right")), (7, 7))
            generations = {self.client.version(name, 1).generation for name in ("left", "right")}
            self.assertEqual(generations, {reply.generation})
        self.assertEqual(callers.failures, [])
        # A setting that takes a restart, and a file that is wrong.
        code, text = self.refused_config("workers: 1")
        self.assertEqual(code, grpc.StatusCode.FAILED_PRECONDITION)
        self.assertIn("workers", text)
        code, text = self.refused_config("wrokers: 1")
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("wrokers", text)
        self.assertEqual(self.stamp("left"), 7)

    def refused_config(self, text):
        with self.assertRaises(grpc.RpcError) as caught:
            self.configure(text)
        return caught.exception.code(), caught.exception.details()

    def test_removing_the_model_being_called(self):
        base = os.path.join(self.daemon.dir, "removed")
        add_stamp(base, 5, name="passing")
        self.configure(f'models {{ name: "passing" base_path: "{base}/passing" }}')
        failures = []
        answered = threading.Event()
        gone = threading.Event()

        def run():
            while not gone.is_set():
                try:
                    if self.stamp("passing") != 5:
                        failures.append("mixed scores")
                    answered.set()
                except grpc.RpcError as error:
                    if error.code() != grpc.StatusCode.NOT_FOUND:
                        failures.append(f"{error.code()} {error.details()}")
                    gone.set()

        callers = [threading.Thread(target=run) for _ in range(4)]
        for caller in callers:
            caller.start()
        self.assertTrue(answered.wait(10))
        reply = self.configure("")
        self.assertEqual([(m.name, m.removed) for m in reply.models], [("passing", True)])
        for caller in callers:
            caller.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.stamp(), 1)

    def test_ulf_admin(self):
        add_stamp(self.repository, 2, version=2)
        self.assertEqual(self.ulf("load", "stamp", "2"),
                         (0, "stamp v2: loaded\nstamp v1: unloaded\n" + LASTS))
        code, text = self.ulf("status")
        self.assertEqual(code, 0)
        self.assertRegex(text, r"stamp +2 +SERVING +yes, since generation \d+")
        self.assertEqual(self.ulf("rollback", "stamp"),
                         (0, f"stamp v1: loaded\nstamp v2: unloaded\n{STAYS_OUT}stamp: v2 -> v1\n"))
        self.assertEqual(self.ulf("label", "stamp", "next", "2")[0], 1)  # In quarantine.
        self.assertEqual(self.ulf("load", "stamp", "2")[0], 0)
        self.assertEqual(self.ulf("label", "stamp", "next", "2"),
                         (0, f'stamp v2: serves already\n{LASTS}stamp label "next": nothing -> v2\n'))
        self.assertEqual(self.ulf("label", "stamp", "next")[0], 0)
        code, text = self.ulf("load", "nothing")
        self.assertEqual(code, 1)
        self.assertIn('model "nothing" is unknown; models: "stamp"', text)
        self.assertEqual(self.ulf("reload-config", "--dry_run")[0], 0)
        self.assertEqual(self.ulf("explode")[0], 2)
        self.assertEqual(self.ulf("load", "stamp", "x")[0], 2)


class MemoryTest(DaemonTest):
    """Old and new must fit together."""

    CONFIG = """
watch { poll_interval_ms: 50 settle_time_ms: 0 retry_backoff_ms: 100 }
shutdown { drain_delay_ms: 0 }
memory_budget_bytes: 16777216
"""

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    def test_version_beyond_the_budget_is_refused(self):
        with Callers(self.daemon, IDS, stamp_of, threads=2) as callers:
            files = {**stamp_files(2), "padding": b"x" * (20 << 20)}
            write_version(os.path.join(self.repository, "stamp", "2"), files)
            def refused():
                status = self.client.version("stamp", 2)
                return status if status and "memory_budget_bytes" in status.error else None

            status = wait_for(refused, "version 2 is refused")
            self.assertIn("memory_budget_bytes allows 16 MiB", status.error)
            self.assertFalse(status.HasField("quarantine"))
            os.remove(os.path.join(self.repository, "stamp", "2", "padding"))
            wait_for(lambda: set(callers.first) == {1, 2}, "callers get version 2")
        self.assertEqual(callers.failures, [])
