"""The admin service and SIGHUP: looking at the repository on request; `ulf` before a server that is none.
SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import json
import os
import signal
import socket
import struct
import threading
import unittest

import grpc

import health_v1_pb2 as health_pb
from harness import env
from harness.admin import ON_REQUEST, AdminDaemonTest, admin_pb
from harness.clients import native_pb, outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import add_stamp
from harness.modelfiles import write_version
from harness.loading import ulf
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

    def test_many_reloads_at_once(self):
        def reload(_):
            try:
                self.admin.call("ReloadRepository")
            except grpc.RpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            codes = set(pool.map(reload, range(60)))
        self.assertIn(grpc.StatusCode.OK, codes)
        self.assertLessEqual(codes, {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED})
        self.admin.call("ReloadRepository")  # None of them is left in the way.

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


class StrangeServerTest(unittest.TestCase):
    """What `ulf` says of replies that no daemon gives."""

    def setUp(self):
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def tearDown(self):
        self.server.stop(None).wait()

    def answer(self, service, **replies):
        handlers = {method: grpc.unary_unary_rpc_method_handler(lambda *_, text=reply.SerializeToString(): text)
                    for method, reply in replies.items()}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self.server.start()

    def test_admin(self):
        status, change = admin_pb.GetStatusResponse(), admin_pb.LoadModelResponse(notice="n" * 100_000)
        model = status.models.add(name="m" * 100_000)
        model.versions.add(version=-1, state=99, error="e" * 100_000)
        change.versions.add(version=1, outcome=99, error="e" * 100_000)
        self.answer("ulfd.admin.v1.AdminService", GetStatus=status, LoadModel=change)
        for action, want in ((("status",), "99"), (("load", "m"), "unknown")):
            code, out, _ = ulf("admin", self.target, *action)
            self.assertEqual(code, 0)
            self.assertIn(want, out)
            self.assertLess(len(out), 20_000)

    def test_health(self):
        self.answer("grpc.health.v1.Health", Check=health_pb.HealthCheckResponse(status=99))
        code, _, error = ulf("health", self.target)
        self.assertEqual((code, error), (1, "ulf health: 99\n"))

    def test_frames_without_end(self):
        """A server that sends GOAWAY for ever: gRPC reads on past the deadline."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=self.flood, args=(server,), daemon=True).start()
            target = f"127.0.0.1:{server.getsockname()[1]}"
            for arguments in (("health", target), ("admin", target, "status"), ("admin", target, "load", "m")):
                code, _, error = ulf(*arguments, "--timeout=1s")
                self.assertEqual(code, 1, error)
                self.assertRegex(error, "DEADLINE|UNAVAILABLE|no end after its deadline")

    @staticmethod
    def flood(server):
        def frame(kind, payload):
            return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, 0, 0) + payload

        while True:
            try:
                connection = server.accept()[0]
            except OSError:
                return
            with connection:
                try:
                    connection.sendall(frame(4, b""))
                    while True:
                        connection.sendall(frame(7, struct.pack(">II", 2**31 - 1, 0)) * 1000)
                except OSError:
                    pass

    def test_predict(self):
        path = os.path.join(env.scratch("strange"), "request.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write('model { name: "m" }')
        reply = native_pb.PredictResponse()
        reply.outputs.add(name="o", shape=[1] * 100_000, values=[1])
        self.answer("ulfd.v1.PredictionService", Predict=reply)
        code, out, error = ulf("predict", self.target, f"--request={path}")
        self.assertEqual((code, out), (1, ""))
        self.assertIn('output "o": shape [1, 1', error)
        self.assertLess(len(error), 20_000)

    def test_load(self):
        """Its report has the reasons of failures."""
        def refuse(_, context):
            context.abort(grpc.StatusCode.INTERNAL, "\x1b[2J" + "\x7f")
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            "ulfd.v1.PredictionService", {"Predict": grpc.unary_unary_rpc_method_handler(refuse)}),))
        self.answer("ulfd.v1.PredictionService", GetModelMetadata=native_pb.GetModelMetadataResponse())
        arguments = ("load", self.target, "--model=m", "--calls=3", "--warmup=0s", "--rate=100")
        code, out, _ = ulf(*arguments)
        self.assertEqual(code, 1)
        self.assertIn("INTERNAL: \\x1b[NJ\\x7f", out)
        _, out, _ = ulf(*arguments, "--json")
        self.assertEqual(json.loads(out)["reasons"], {"INTERNAL: \x1b[NJ\x7f": 3})
