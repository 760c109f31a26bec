"""The admin service and SIGHUP: looking at the repository on request.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import signal

import grpc

from harness.admin import ON_REQUEST, AdminDaemonTest
from harness.clients import outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import add_stamp
from harness.modelfiles import write_version
from harness.small import stamp_files, stamp_inputs


class AdminTest(AdminDaemonTest):
    CONFIG = ON_REQUEST + 'admin_address: "127.0.0.1:0"'

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    def stamp(self):
        reply = self.client.predict(predict_request("stamp", stamp_inputs([0]), ()))
        return outputs_of(reply)["score"].item()

    def test_status(self):
        status = self.admin.call("GetStatus")
        self.assertTrue(status.server.ready)
        self.assertFalse(status.server.draining)
        self.assertGreaterEqual(status.server.workers, 1)
        self.assertIn("stamp", [model.name for model in status.models])
        # The page for people says the same.
        code, text = self.daemon.http("/statusz")
        self.assertEqual(code, 200)
        self.assertEqual(json.loads(text)["server"]["version"], status.server.version)

    def test_reload(self):
        before = self.stamp()
        add_stamp(self.repository, before + 1, version=int(before) + 1)
        self.assertEqual(self.stamp(), before)
        reply = self.admin.call("ReloadRepository")
        self.assertEqual(self.stamp(), before + 1)
        self.assertGreater(reply.generation_after, reply.generation_before)
        again = self.admin.call("ReloadRepository")
        self.assertEqual(again.generation_after, again.generation_before)

    def test_reload_says_what_was_refused(self):
        files = stamp_files(1)
        files["graph_ulf.txt"] = files["graph_ulf.txt"].replace("inner_product_layer", "no_layer")
        write_version(os.path.join(self.repository, "broken", "1"), files)
        reply = self.admin.call("ReloadRepository")
        (version,) = next(m for m in reply.models if m.name == "broken").versions
        self.assertIn("no_layer", version.error)
        self.assertFalse(version.serving)

    def test_the_callers_of_models_do_not_have_it(self):
        with self.assert_refused(grpc.StatusCode.UNIMPLEMENTED):
            self.client.channel.unary_unary("/ulfd.admin.v1.AdminService/GetStatus")(b"",
                                                                                     timeout=10)

    def test_sighup(self):
        before = self.stamp()
        add_stamp(self.repository, before + 1, version=int(before) + 1)
        self.daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.stamp() == before + 1, "the new version")
