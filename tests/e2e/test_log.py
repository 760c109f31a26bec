"""The log: JSON on every line whoever writes it, calls that somebody will look for, what a start finds.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import socket
import time
import unittest

import grpc

from harness import env
from harness.certificates import Authority
from harness.clients import Client, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import DaemonTest, add_stamp
from harness.metrics import scrape
from harness.small import stamp_inputs


def lines(daemon, message):
    """The log's objects with that message; every line is an object."""
    found = [json.loads(line) for line in daemon.log().splitlines()]
    return [line for line in found if line["message"] == message]


class CallLinesTest(DaemonTest):
    CONFIG = FAST + """
logging { format: "json" max_calls_per_second: 20 }
models { name: "stamp" labels { key: "canary" value: 9 } }
"""

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    def test_calls_that_somebody_looks_for(self):
        good = predict_request("stamp", stamp_inputs([1]), ())
        self.client.predict(good)
        good.request_id = "good"
        self.client.predict(good)
        unknown = predict_request("stamped", stamp_inputs([1]), ())
        for request_id in ("", "bad \"1\"\n"):
            unknown.request_id = request_id
            with self.assertRaises(grpc.RpcError):
                self.client.predict(unknown)
        (call,) = wait_for(lambda: lines(self.daemon, "call"), "the line")
        self.assertEqual((call["level"], call["request_id"], call["code"]),
                         ("info", "bad \"1\"\n", "NOT_FOUND"))
        self.assertIn("stamped", call["error"])
        self.assertRegex(call["peer"], r"^ipv[46]:")
        # However many there are.
        unknown.request_id = "again"
        for _ in range(200):
            with self.assertRaises(grpc.RpcError):
                self.client.predict(unknown)
        self.assertLess(len(lines(self.daemon, "call")), 200)

    def test_what_is_configured_and_not_there(self):
        (line,) = lines(self.daemon, "a version that is configured does not exist")
        self.assertEqual((line["level"], line["model"], line["version"], line["named_by"]),
                         ("warning", "stamp", 9, "canary"))


class ShareOfCallsTest(DaemonTest):
    CONFIG = FAST + 'logging { format: "json" call_share: 0.1 }\n'

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    def test_a_share_of_all(self):
        for ads in range(1, 101):
            self.client.predict(predict_request("stamp", stamp_inputs([1] * ads), ()))
        calls = lines(self.daemon, "call")
        self.assertEqual(len(calls), 10)
        self.assertEqual([call["ads"] for call in calls], list(range(10, 101, 10)))
        for call in calls:
            self.assertEqual((call["model"], call["version"], call["code"]), ("stamp", 1, "OK"))
            self.assertEqual(call["values"], 3 * call["ads"])
            self.assertGreaterEqual(call["total_us"], call["queue_us"] + call["decode_us"])


class GrpcLinesTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    @classmethod
    def setUpClass(cls):
        folder = os.path.join(env.scratch(cls.__name__), "certificates")
        certificate, key = Authority(folder).issue("server")
        cls.CONFIG = FAST + ('logging { format: "json" }\n'
                             f'tls {{ certificate_file: "{certificate}" key_file: "{key}" }}\n')
        super().setUpClass()

    def test_plain_text_on_a_tls_port(self):
        begin = time.monotonic()
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", self.daemon.grpc_port), 10) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while connection.recv(1000):
                    pass
        said = wait_for(lambda: lines(self.daemon, "gRPC"), "what gRPC says")
        self.assertIn("andshake", said[0]["text"])
        self.assertRegex(said[0]["source"], r"^\w+\.cc:\d+$")
        # 20 a second.
        self.assertLessEqual(len(said), 20 * (time.monotonic() - begin + 2))


class StalledReaderTest(unittest.TestCase):
    """Nobody reads standard error, as when a log driver hangs."""

    def test_a_pipe(self):
        self.check(*os.pipe())

    def test_a_socket(self):
        self.check(*(end.detach() for end in socket.socketpair()))

    def check(self, reader, writer):
        """Calls and the end do not wait for it."""
        repository = os.path.join(env.scratch("stalled"), "models")
        add_stamp(repository, 1)
        unknown = predict_request("stamped" * 100, stamp_inputs([1]), ())
        unknown.request_id = "r" * 100
        try:
            with Daemon(repository, FAST + "logging { max_calls_per_second: 10000 }",
                        name="stalled", before=lambda: os.dup2(writer, 2)) as daemon:
                client = Client(daemon)
                for _ in range(600):
                    with self.assertRaises(grpc.RpcError) as caught:
                        client.predict(unknown)
                    self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
                client.predict(predict_request("stamp", stamp_inputs([1]), ()))
                self.assertGreater(scrape(daemon).sum("ulfd_log_lines_dropped_total"), 0)
                self.assertGreater(len(os.read(reader, 1 << 20)), 10000)  # Somebody reads again.
                client.predict(predict_request("stamp", stamp_inputs([1]), ()))
                client.close()
                # And its end is an orderly one, with the pipe full again.
        finally:
            os.close(reader)
            os.close(writer)
