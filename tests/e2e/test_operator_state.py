"""What operators changed, after a restart; and a configuration file that is watched.
SPDX-License-Identifier: Apache-2.0
"""
import os
import unittest

import grpc

from harness import env
from harness.admin import ON_REQUEST, AdminClient
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import Daemon, StartFailed, wait_for
from harness.fixtures import DaemonTest, add_stamp
from harness.small import stamp_inputs

MODELS = 'models { name: "named" version_policy { latest { count: 2 } } labels { %s } }\n'
STABLE = 'key: "stable" value: 2'


class StateTest(unittest.TestCase):
    def setUp(self):
        self.work = env.scratch(type(self).__name__)
        self.repository = os.path.join(self.work, "models")
        self.state = os.path.join(self.work, "state")
        for name in ("found", "named"):
            for version in (1, 2):
                add_stamp(self.repository, version, version=version, name=name)

    def run_daemon(self, change, labels=STABLE):
        """Starts a daemon, has it changed, and gives back what serves then, without a label, by
        model.  None: nothing."""
        config = (ON_REQUEST + 'admin_address: "127.0.0.1:0"\n' + MODELS % labels +
                  f'state_file: "{self.state}"\n')
        with Daemon(self.repository, config=config) as daemon, Client(daemon) as client, \
                AdminClient(daemon.admin_target) as admin:
            change(admin.call)
            found = {}
            for name in ("found", "named"):
                request = predict_request(name, stamp_inputs([0]), ())
                try:
                    reply = client.predict(request)
                    found[name] = outputs_of(reply)["score"].item()
                    self.assertEqual(found[name], reply.model.version)
                except grpc.RpcError as error:
                    self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
                    found[name] = None
            self.log = daemon.log()
            return found

    @staticmethod
    def nothing(call):
        call("ReloadRepository")

    def test_roll_backs_outlast_a_restart(self):
        def roll_back(call):
            for name in ("found", "named"):
                reply = call("Rollback", name=name)
                self.assertIn("outlasts a restart", reply.notice)

        before = self.run_daemon(self.nothing)
        self.assertEqual(before, {"found": 2, "named": 2})
        self.assertFalse(os.path.exists(self.state))
        back = {"found": 1, "named": 1}
        self.assertEqual(self.run_daemon(roll_back), back)
        for _ in range(2):
            self.assertEqual(self.run_daemon(self.nothing), back)
            # Not even for a moment.
            published = [line for line in self.log.splitlines() if "model published" in line]
            self.assertFalse([line for line in published
                              if "model=found" in line and "version=2" in line], published)
        # Content that nobody rejected is served.
        add_stamp(self.repository, 3, version=3, name="found")
        self.assertEqual(self.run_daemon(self.nothing), {"found": 3, "named": 1})
        # A configuration that says something else wins.
        self.assertEqual(self.run_daemon(self.nothing, labels='key: "stable" value: 1'),
                         {"found": 3, "named": 1})
        self.assertIn("is dropped: the configuration says something else", self.log)
        self.assertEqual(self.run_daemon(lambda call: call("ReloadConfig")),
                         {"found": 3, "named": 2})

    def test_unloads_labels_and_loads_outlast_a_restart(self):
        def change(call):
            call("UnloadModel", name="found")
            call("LoadModel", name="named", version=1)
            call("SetLabel", name="named", label="next", version=1)
            call("SetLabel", name="named", label="stable")

        def look(call):
            call("ReloadRepository")
            (named,) = [m for m in call("GetStatus").models if m.name == "named"]
            self.assertEqual([(v.version, v.serving, list(v.labels)) for v in named.versions],
                             [(1, True, ["next"]), (2, True, [])])

        after = {"found": None, "named": 2}
        self.assertEqual(self.run_daemon(change), after)
        self.assertEqual(self.run_daemon(look), after)
        self.assertEqual(self.run_daemon(lambda call: call("LoadModel", name="found")),
                         {"found": 2, "named": 2})
        self.assertEqual(self.run_daemon(look), {"found": 2, "named": 2})

    def test_a_file_that_is_no_good_ends_the_start(self):
        with open(self.state, "w", encoding="utf-8") as file:
            file.write('models { name: "found" pined: 3 }\n')
        with self.assertRaises(StartFailed) as caught:
            self.run_daemon(self.nothing)
        self.assertIn(f"{self.state}:1:", caught.exception.log)
        self.assertIn("pined", caught.exception.log)

    def test_a_file_that_cannot_be_written_is_said(self):
        self.state = os.path.join(self.work, "gone", "state")
        os.mkdir(os.path.dirname(self.state))

        def change(call):
            os.rmdir(os.path.dirname(self.state))
            reply = call("Rollback", name="found")
            self.assertIn("until the daemon ends", reply.notice)
            self.assertIn(f"cannot write {self.state}", reply.notice)

        self.assertEqual(self.run_daemon(change), {"found": 1, "named": 2})
        self.assertIn("a restart would forget the change", self.log)


class WatchedConfigTest(DaemonTest):
    CONFIG = """
watch { poll_interval_ms: 50 settle_time_ms: 0 configuration: true }
shutdown { drain_delay_ms: 0 }
"""

    @classmethod
    def fill(cls, repository):
        for version in (1, 2):
            add_stamp(repository, version, version=version)

    def test_a_changed_file_is_taken_over(self):
        models = 'models { name: "stamp" labels { key: "new" value: %d } }\n'
        request = predict_request("stamp", stamp_inputs([0]), ())
        request.model.label = "new"
        self.daemon.write_config(self.CONFIG + models % 2)
        wait_for(lambda: "is in force" in self.daemon.log(), "the configuration")
        self.assertEqual(self.client.predict(request).model.version, 2)
        # What is no good is refused once, however often it is looked at.
        self.daemon.write_config(self.CONFIG + "modelz {}")
        wait_for(lambda: "is refused" in self.daemon.log(), "the refusal")
        self.daemon.write_config(self.CONFIG + models % 1)
        wait_for(lambda: self.client.predict(request).model.version == 1, "the next one")
        # It is said after it is done.
        wait_for(lambda: self.daemon.log().count("is in force") == 2, "the line")
        self.assertEqual(self.daemon.log().count("is refused"), 1)
