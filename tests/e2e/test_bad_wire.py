"""Connections that misbehave: what they get, and that others are served meanwhile as if nothing were.
Wrong certificates and tokens: test_security.py.  Floods that get nothing: tests/hostile.
SPDX-License-Identifier: Apache-2.0
"""
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
import zlib

import grpc
import health_v1_pb2 as health_pb

from harness import env, http2
from harness.bystander import Bystander
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import DaemonTest, add_heavy, add_stamp
from harness.http2 import Connection, frame
from harness.metrics import scrape
from harness.small import heavy_inputs, stamp_inputs

PREDICT = "/ulfd.v1.PredictionService/Predict"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
DEADLINE = grpc.StatusCode.DEADLINE_EXCEEDED


def stamp_request(ads=1):
    return predict_request("stamp", stamp_inputs([i % 50 for i in range(ads)]), ())


def body(ads=1):
    return http2.grpc_message(stamp_request(ads).SerializeToString())


by_speed = unittest.skipIf(
    env.SANITIZED,
    "limits of connections go by speed and by growth of memory, which instrumenting changes")


@by_speed
class BadWireTest(DaemonTest):
    CONFIG = FAST + """
workers: 1
connections {
  max_connections: 120 handshake_timeout_ms: %d max_concurrent_streams: 50
  memory_quota_bytes: 67108864 min_client_ping_interval_ms: 5000
}
""" % (700 * env.SLOWNESS)

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)
        add_heavy(repository)

    def setUp(self):
        wait_for(lambda: self.metric("ulfd_connections") < 10, "connections of other tests end")
        self.bystander = Bystander(self.daemon, stamp_request())
        self.addCleanup(self.bystander.stop)

    def tearDown(self):
        self.bystander.check(self)
        self.assertEqual(self.daemon.http("/healthz")[0], 200)
        wait_for(lambda: self.metric("ulfd_inflight_requests") <= 1, "no call is left over")

    def metric(self, name, **labels):
        return scrape(self.daemon).sum(name, **labels)

    def connect(self, **options):
        connection = Connection(self.daemon.grpc_port, **options)
        self.addCleanup(connection.close)
        return connection

    def connect_from(self, address, timeout=20):
        """Not from that of the other clients: it may be refused for what it did."""
        return self.connect(over=socket.create_connection(
            ("127.0.0.1", self.daemon.grpc_port), timeout, source_address=(address, 0)))

    def raw(self, port):
        connection = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.addCleanup(connection.close)
        return connection

    def ends(self, connection):
        """The server ends the connection; returns what it said before."""
        said = b""
        try:
            while True:
                got = connection.recv(65536)
                if not got:
                    return said
                said += got
        except ConnectionError:
            return said

    def test_garbage(self):
        source = random.Random(1)
        hello = bytes.fromhex("1603010200010001fc0303") + source.randbytes(500)  # TLS
        garbage = {
            "noise": source.randbytes(5000), "zeros": bytes(5000), "hello": hello,
            "text": b"A" * 100000, "preface and noise": http2.PREFACE + b"\xff" * 5000,
            "HTTP/1": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/2": http2.PREFACE + frame(http2.SETTINGS),
        }
        for port in (self.daemon.grpc_port, self.daemon.http_port):
            for name, data in garbage.items():
                if name == "HTTP/2" and port == self.daemon.grpc_port:
                    continue
                with self.subTest(name, port=port):
                    connection = self.raw(port)
                    try:
                        connection.sendall(data)
                        if port == self.daemon.http_port:
                            connection.shutdown(socket.SHUT_WR)
                    except ConnectionError:
                        pass
                    self.ends(connection)

    def test_frames_that_are_against_the_rules(self):
        large = struct.pack(">I", (1 << 24) - 1)[1:] + struct.pack(">BBI", http2.DATA, 0, 1)
        cases = {
            "a frame of 16 MiB": large + bytes(100000),
            "data of no stream": frame(http2.DATA, 0, 0, b"x"),
            "settings of a stream": frame(http2.SETTINGS, 0, 3),
            "half a settings frame": frame(http2.SETTINGS, 0, 0, b"abc"),
            "a window of 0": frame(http2.WINDOW_UPDATE, 0, 0, bytes(4)),
            "a ping of 3 bytes": frame(http2.PING, 0, 0, b"abc"),
            "a continuation of nothing": frame(http2.CONTINUATION, 0, 1, b"abc"),
            "headers that are none": frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff" * 50),
        }
        ignored = {"data of no stream"}  # Nobody waits for it, nobody is told.
        for name, data in cases.items():
            with self.subTest(name):
                connection = self.connect()
                connection.send(data)
                wrong = (http2.GOAWAY, http2.RST_STREAM, http2.HEADERS)
                self.assertTrue(connection.read_until(
                    lambda: connection.closed or any(connection.of(kind) for kind in wrong), 10)
                    or connection.closed or name in ignored)

    def test_connections_that_say_nothing(self):
        silent = [self.raw(self.daemon.grpc_port) for _ in range(40)]
        greeted = [self.raw(self.daemon.grpc_port) for _ in range(40)]
        for connection in greeted:
            connection.sendall(http2.PREFACE[:10])
        pages = [self.raw(self.daemon.http_port) for _ in range(200)]
        for connection in pages:
            try:
                connection.sendall(b"GET /hea")
            except ConnectionError:
                pass  # The first ones are given up for the last ones.
        begin = time.monotonic()
        for _ in range(5):
            self.assertEqual(self.daemon.http("/healthz")[0], 200)
        self.assertLess(time.monotonic() - begin, 2 * env.SLOWNESS)
        self.bystander.check(self)
        for connection in silent + greeted:
            self.ends(connection)  # After handshake_timeout_ms.
        wait_for(lambda: self.metric("ulfd_connections") < 10, "they are no longer counted")

    def test_more_connections_than_allowed(self):
        many = [self.connect() for _ in range(150)]
        wait_for(lambda: self.metric("ulfd_connections_refused_total", why="max_connections") >= 30,
                 "connections over the limit are refused")
        self.assertLessEqual(self.metric("ulfd_connections"), 120)
        self.assertIn("connections over the limit are closed", self.daemon.log())
        self.bystander.check(self)
        for connection in many:
            connection.close()
        wait_for(lambda: self.metric("ulfd_connections") < 10, "there is room again")
        with Client(self.daemon) as client:
            client.predict(stamp_request())

    def test_huge_headers(self):
        for size in (20000, 100000):
            # One connection each: gRPC may close it.
            with Client(self.daemon) as client, \
                    self.assert_refused(EXHAUSTED, "metadata size exceeds limit"):
                client.Predict(stamp_request(), timeout=20, metadata=[("x-large", "x" * size)])
        with Client(self.daemon) as client:
            client.Predict(stamp_request(), timeout=20, metadata=[("x-fits", "x" * 10000)])

    def test_huge_headers_in_pieces(self):
        # gRPC 1.51 itself measures the frame that it reads, not what came before it.
        for name, kind in (("plain", b"\0"), ("indexed", b"\x40"), ("never indexed", b"\x10")):
            for size, status in ((10000, b"0"), (20000, b"8"), (1000000, None)):
                with self.subTest(name, size=size):
                    connection = self.connect()
                    block = http2.call_headers(PREDICT) + kind + http2.header_block(
                        [("x-large", "x" * size)])[1:]
                    pieces = [block[i:i + 16384] for i in range(0, len(block), 16384)]
                    connection.send(frame(http2.HEADERS, http2.END_HEADERS * (len(pieces) == 1), 1,
                                          pieces[0]))
                    for piece in pieces[1:]:
                        connection.send(frame(http2.CONTINUATION,
                                              http2.END_HEADERS * (piece is pieces[-1]), 1, piece))
                    connection.send(frame(http2.DATA, http2.END_STREAM, 1, body()))
                    trailers = lambda: [f[3] for f in connection.of(http2.HEADERS)
                                        if b"grpc-status" in f[3]]
                    if status is None:  # So many frames end the connection.
                        self.ends(connection.socket)
                        connection.close()
                        continue
                    self.assertTrue(connection.read_until(trailers, 20 * env.SLOWNESS))
                    self.assertIn(b"grpc-status\x01" + status, trailers()[0])
                    if status == b"8":
                        self.assertIn(b"metadata size exceeds limit", trailers()[0])
                    connection.close()

    def send_endless_headers(self, limit, first, piece, seconds):
        """A call whose headers go on until `limit` bytes or so many seconds are over; the open connection."""
        connection = self.connect_from("127.0.0.2", min(seconds, 20))
        connection.send(frame(http2.HEADERS, 0, 1, http2.call_headers(PREDICT) + first))
        piece = frame(http2.CONTINUATION, 0, 1, piece)
        sent = 0
        until = time.monotonic() + seconds
        while sent < limit and time.monotonic() < until and connection.send(piece):
            sent += len(piece)
        return connection

    def test_headers_that_never_end(self):
        """gRPC 1.51 would collect them: the connection ends after a few frames."""
        # One header of a gigabyte, it says.
        endless = b"\0\x06x-more\x7f\xff\xff\xff\xff\x03"
        for first, piece in ((b"", http2.header_block([("x-more", "y" * 1000)] * 16)),
                             (b"", b"\x90" * 16384), (b"", b"\x90" * 100), (b"", b""),
                             (endless, bytes(16384))):
            with self.subTest(first=first, piece=piece[:10]):
                connection = self.send_endless_headers(20e6, first, piece, 20 * env.SLOWNESS)
                self.assertTrue(connection.closed)

    def test_headers_of_a_stream_that_has_ended(self):
        """gRPC 1.51 skips them, but for what has not come to its end."""
        connection = self.connect_from("127.0.0.2")
        stream = connection.open_stream(PREDICT, body())
        self.assertTrue(connection.read_until(lambda: len(connection.of(http2.HEADERS)) >= 2))
        for _ in range(20):  # Complete ones are nothing bad.
            connection.send(frame(http2.HEADERS, http2.END_HEADERS, stream, b"\x90" * 100))
        stream = connection.open_stream(PREDICT, body())
        self.assertTrue(connection.read_until(lambda: any(f[2] == stream for f in connection.of(http2.HEADERS))))
        endless = b"\0\x06x-more\x7f\xff\xff\xff\xff\x03"
        sent = 0
        while sent < 20e6 and connection.send(frame(http2.HEADERS, http2.END_HEADERS, 1, endless + bytes(8000))):
            sent += 8000
        self.assertTrue(connection.closed)

    def open_with_headers(self, streams, address="127.0.0.3"):
        """A connection with so many calls that have no message, and 36 KB of headers each in memory."""
        connection = self.connect_from(address)
        first, more = http2.call_headers(PREDICT) + b"\x90" * 250, b"\x90" * 230
        connection.send(b"".join(frame(http2.HEADERS, 0, stream, first) +
                                 frame(http2.CONTINUATION, http2.END_HEADERS, stream, more)
                                 for stream in range(1, 2 * streams, 2)))
        return connection

    def stays(self, connection):
        self.assertFalse(connection.read_until(lambda: connection.closed, 0.1))

    def test_headers_of_one_byte(self):
        """Each takes 64 bytes in memory: who opens many streams with as many as a call may have is gone
        before it matters.  Other addresses have room meanwhile, and so has that one once it is over."""
        closed = self.closed("headers")
        kept = [self.open_with_headers(45) for _ in range(4)]  # 6.2 MiB of 8, of which 7.1 are its.
        for connection in kept:
            self.stays(connection)
        memory = self.daemon.resident_bytes()
        for _ in range(20):
            connection = self.open_with_headers(90)
            self.assertTrue(connection.read_until(lambda: connection.closed, 20 * env.SLOWNESS))
        if not env.SANITIZED:
            self.assertLess(self.daemon.resident_bytes() - memory, 64 << 20)
        self.assertEqual(self.closed("headers"), closed + 20)
        self.stays(self.open_with_headers(40, "127.0.0.2"))
        with Client(self.daemon) as client:
            client.Predict(stamp_request(), timeout=20, metadata=[("x-fits", "x" * 10000)])
        for connection in kept:
            self.stays(connection)
            connection.close()
        for _ in range(10):  # 17 MiB, one after another.
            wait_for(lambda: self.metric("ulfd_connections") < 10, "they are gone")
            connection = self.open_with_headers(50)
            self.stays(connection)
            connection.close()
        self.assertEqual(self.closed("headers"), closed + 20)

    def test_headers_in_pieces(self):
        """What gRPC reads at a time does not matter, nor that headers come behind a message."""
        for name, end, first in (("headers", 0, False), ("trailers", http2.END_STREAM, True)):
            with self.subTest(name):
                closed = self.closed("headers")
                kept = [self.open_with_headers(45) for _ in range(4)]
                connection = self.connect_from("127.0.0.3")
                for stream in range(1, 181, 2):
                    if first:
                        connection.send(frame(http2.HEADERS, http2.END_HEADERS, stream, http2.call_headers(PREDICT)) +
                                        frame(http2.DATA, 0, stream, body()[:-1]))
                    data = frame(http2.HEADERS, http2.END_HEADERS | end, stream,
                                 (b"" if first else http2.call_headers(PREDICT)) + b"\x90" * 250)
                    for at in range(0, len(data), 14):
                        connection.send(data[at:at + 14])
                # Who comes last of the five: all of them have 7.8 MiB of 7.1.
                wait_for(lambda: self.closed("headers") > closed, "one of them is closed")
                for other in [*kept, connection]:
                    other.close()
                wait_for(lambda: self.metric("ulfd_connections") < 10, "they are gone")

    def test_compressed_requests(self):
        """gRPC 1.51 would inflate all of it before it looks at the limit."""
        before = self.daemon.resident_bytes()
        zeros = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = b"".join(zeros.compress(bytes(1 << 20)) for _ in range(32)) + zeros.flush()
        message = b"\1" + struct.pack(">I", len(bomb)) + bomb
        for path in (PREDICT, "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"):
            with self.subTest(path):
                connection = self.connect()
                stream = connection.open_stream(path, end=False, more=[("grpc-encoding", "gzip")])
                for i in range(0, len(message), 16384):
                    connection.send(frame(http2.DATA, http2.END_STREAM * (i + 16384 >= len(message)),
                                          stream, message[i:i + 16384]))
                headers = lambda: b"".join(f[3] for f in connection.of(http2.HEADERS))
                self.assertTrue(connection.read_until(lambda: b"grpc-status" in headers()))
                self.assertIn(b"grpc-status\x0212", headers())
                self.assertIn(b"grpc-accept-encoding\x08identity", headers())
                connection.close()
        if not env.SANITIZED:
            self.assertLess(self.daemon.resident_bytes() - before, 64 << 20)

    def closed(self, why):
        return self.metric("ulfd_connections_closed_total", why=why)

    def assert_closed(self, connection, why, before):
        """The server has closed it, and counted it under one of these words."""
        connection.read_until(lambda: connection.closed)
        self.assertTrue(connection.closed)
        wait_for(lambda: sum(self.closed(word) for word in why) > before, f"counted as {why}")

    def test_replies_that_nobody_takes(self):
        before = self.daemon.resident_bytes()
        window = struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, 0)
        for path, message in (("/ulfd.v1.PredictionService/GetModelMetadata", b"\x0a\x07\x0a\x05stamp"),
                              ("/grpc.health.v1.Health/Check", b"")):
            with self.subTest(path):
                count = self.closed("calls") + self.closed("unsent") + self.closed("streams")
                connection = self.connect(settings=window)
                for _ in range(20000):
                    if connection.closed:
                        break
                    connection.open_stream(path, http2.grpc_message(message))
                self.assert_closed(connection, ("calls", "unsent", "streams"), count)
        if not env.SANITIZED:
            self.assertLess(self.daemon.resident_bytes() - before, 64 << 20)

    def test_calls_that_never_send_their_message(self):
        before = self.daemon.resident_bytes()
        count = self.closed("streams")
        connection = self.connect()  # Which does not say that it has read the limit.
        for _ in range(100000):
            if connection.closed:
                break
            connection.open_stream(PREDICT, end=False)
        self.assert_closed(connection, ("streams",), count)
        if not env.SANITIZED:
            self.assertLess(self.daemon.resident_bytes() - before, 512 << 20)

    def test_connections_that_send_all_at_once(self):
        """All has come before gRPC reads any of it, and nothing comes after it."""
        count = self.closed("streams")
        calls = http2.PREFACE + frame(http2.SETTINGS) + b"".join(
            frame(http2.HEADERS, http2.END_HEADERS, stream, http2.call_headers(PREDICT))
            for stream in range(1, 401, 2))
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        connections = [self.raw(self.daemon.grpc_port) for _ in range(30)]
        for connection in connections:
            connection.sendall(calls)
        os.kill(self.daemon.process.pid, signal.SIGCONT)
        for connection in connections:
            self.ends(connection)
        self.assertGreater(self.closed("streams"), count)

    def test_frames_of_a_byte(self):
        """Each is within the rules, and takes gRPC as long as one of a kilobyte."""
        pieces = {"DATA": frame(http2.DATA, 0, 1, b"\x1a"), "no DATA": frame(http2.DATA, 0, 1),
                  "SETTINGS": frame(http2.SETTINGS), "unknown": frame(0x55, 0, 0)}
        for name, piece in pieces.items():
            with self.subTest(name):
                count = self.closed("frames")
                connection = self.connect()
                connection.open_stream(PREDICT, b"\0" + struct.pack(">I", 1 << 24), end=False)
                for _ in range(100):
                    if connection.closed or not connection.send(piece * 10000):
                        break
                self.assert_closed(connection, ("frames",), count)

    def test_a_connection_that_never_pauses(self):
        """gRPC reads it on the thread that has handed it over, and hands over no other meanwhile."""
        pieces = {"PRIORITY": frame(http2.PRIORITY, 0, 1, struct.pack(">IB", 0, 1)),
                  "WINDOW_UPDATE": frame(http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x10000)),
                  "calls": None}
        for name, piece in pieces.items():
            with self.subTest(name):
                stop = threading.Event()
                flood = threading.Thread(target=self.flood, args=(piece, stop))
                flood.start()
                try:
                    for _ in range(20):
                        with Client(self.daemon) as client:
                            client.predict(predict_request("stamp", stamp_inputs([1, 2, 3]), ()))
                finally:
                    stop.set()
                    flood.join()

    def flood(self, piece, stop):
        """Sends as fast as the daemon reads, on one connection after the other."""
        while not stop.is_set():
            connection = self.connect()
            while not stop.is_set() and not connection.closed:
                if piece is None:
                    connection.send(b"".join(
                        frame(http2.HEADERS, http2.END_HEADERS, connection.next_stream + 2 * i,
                              http2.call_headers(PREDICT)) for i in range(100)))
                    connection.next_stream += 200
                else:
                    connection.send(piece * 10000)
            connection.close()

    def test_unknown_methods(self):
        with Client(self.daemon) as client:
            for path in ("/no.Service/Method", "/ulfd.v1.PredictionService/Nothing"):
                with self.assert_refused(grpc.StatusCode.UNIMPLEMENTED):
                    client.channel.unary_unary(path)(b"", timeout=20)

    def test_many_watches_of_one_connection(self):
        connection = self.connect()
        connection.send(frame(http2.SETTINGS, http2.ACK))
        for _ in range(40):
            connection.open_stream("/grpc.health.v1.Health/Watch", http2.grpc_message(b""))
        refused = lambda: [f for f in connection.of(http2.HEADERS) if b"grpc-status\x018" in f[3]]
        # Later ones may be indexed.
        self.assertTrue(connection.read_until(refused))
        with Client(self.daemon) as client:
            self.assertEqual(next(client.Watch(health_pb.HealthCheckRequest(), timeout=20)).status,
                             health_pb.HealthCheckResponse.SERVING)

    def test_many_idle_reflection_streams(self):
        threads = len(self.daemon.thread_names())
        connections = [self.connect() for _ in range(8)]
        for connection in connections:
            connection.send(frame(http2.SETTINGS, http2.ACK))
            for _ in range(40):
                connection.open_stream(REFLECTION, http2.grpc_message(b"\x3a\0"), end=False)
        for connection in connections:
            self.assertTrue(connection.read_until(
                lambda connection=connection: len(connection.of(http2.DATA)) >= 8 and
                len({f[2] for f in connection.of(http2.HEADERS)}) == 40))
        self.assertLess(len(self.daemon.thread_names()), threads + 5)

    def test_reflection_streams_of_one_address_leave_some_to_others(self):
        streams = 0
        for _ in range(40):
            connection = self.connect_from("127.0.0.4")
            connection.send(frame(http2.SETTINGS, http2.ACK))
            for _ in range(8):
                connection.open_stream(REFLECTION, http2.grpc_message(b"\x3a\0"), end=False)
            self.assertTrue(connection.read_until(
                lambda connection=connection: len({f[2] for f in connection.of(http2.HEADERS)}) == 8))
            streams += len(connection.of(http2.DATA))
        self.assertGreater(streams, 200)
        other = self.connect()
        other.send(frame(http2.SETTINGS, http2.ACK))
        other.open_stream(REFLECTION, http2.grpc_message(b"\x3a\0"), end=False)
        self.assertTrue(other.read_until(lambda: other.of(http2.DATA), 5 * env.SLOWNESS))

    def test_a_flood_of_streams(self):
        before = self.daemon.resident_bytes()
        for has_read_the_limit in (True, False):
            with self.subTest(has_read_the_limit=has_read_the_limit):
                connection = self.connect()
                connection.read_until(lambda: connection.of(http2.SETTINGS))
                if has_read_the_limit:
                    connection.send(frame(http2.SETTINGS, http2.ACK))
                # None of them ends its request, so they stay; 50 may.
                for _ in range(3000):
                    connection.open_stream(PREDICT, body()[:-1], end=False)
                self.bystander.check(self)
                # gRPC 1.51 takes more from those who do not say that they know its limit.
                if has_read_the_limit:
                    self.assertTrue(connection.read_until(
                        lambda: connection.closed or connection.of(http2.GOAWAY)))
                connection.close()
        if not env.SANITIZED:
            self.assertLess(self.daemon.resident_bytes() - before, 128 << 20)

    def test_pings_without_end(self):
        connection = self.connect()
        for _ in range(200):
            if not connection.send(frame(http2.PING, 0, 0, bytes(8))):
                break
            # What the kernel holds is lost once it learns that nobody reads ours any more.
            connection.read(0.005)
            if connection.of(http2.GOAWAY):
                break
        self.assertTrue(connection.read_until(lambda: connection.of(http2.GOAWAY)))
        self.assertIn(b"too_many_pings", connection.of(http2.GOAWAY)[-1][3])

    def test_deadlines_that_have_passed(self):
        rows = self.metric("ulfd_candidates_total", model="stamp")
        connection = self.connect()
        ended = (http2.RST_STREAM, http2.HEADERS)
        streams = lambda: {f[2] for kind in ended for f in connection.of(kind)}
        # No more at once than a connection may have open: this is about deadlines.
        for opened in range(40, 201, 40):
            for _ in range(40):
                connection.open_stream(PREDICT, body(), more=[("grpc-timeout", "1n")])
            self.assertTrue(connection.read_until(lambda: len(streams()) == opened), len(streams()))
        with Client(self.daemon) as client:
            with self.assert_refused(DEADLINE):
                client.predict(stamp_request(), timeout=-1)
        self.bystander.stop()
        mine = self.metric("ulfd_candidates_total", model="stamp") - rows
        # Whatever was computed, the bystander asked for: one ad at a time.
        counted = self.metric("ulfd_requests_total", model="stamp", code="OK")
        self.assertLessEqual(mine, counted)
        self.bystander = Bystander(self.daemon, stamp_request())
        self.addCleanup(self.bystander.stop)

    def test_a_reader_that_does_not_read(self):
        window = struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, 0)
        connection = self.connect(settings=window)
        for _ in range(40):
            connection.open_stream(PREDICT, body(2000))
        # All are computed, by the one worker there is, and none can be sent.
        self.bystander.check(self, calls=50)
        connection.read(0.2)
        self.assertEqual(connection.of(http2.DATA), [])
        connection.close()

    def test_a_writer_that_does_not_finish(self):
        connection = self.connect()
        for timeout in ([], [("grpc-timeout", "300m")]):
            for _ in range(20):
                connection.open_stream(PREDICT, body()[:-1], end=False, more=timeout)
        self.bystander.check(self, calls=50)
        connection.read(0.4)
        # A timer for each would be work that comes all at once (decision 0092).
        self.assertEqual(connection.of(http2.RST_STREAM) + connection.of(http2.HEADERS), [])
        stream = connection.open_stream(PREDICT, body())
        answered = lambda: {f[2] for f in connection.of(http2.HEADERS)}
        self.assertTrue(connection.read_until(lambda: stream in answered()))

    def test_clients_that_die(self):
        caller = """
import sys
sys.path[:0] = sys.argv[2].split(":")
import grpc
call = grpc.insecure_channel(sys.argv[1]).unary_unary(%r)
message = open(sys.argv[3], "rb").read()
print("sent", flush=True)
while True:
    for future in [call.future(message, timeout=60) for _ in range(8)]:
        future.exception()
""" % PREDICT
        path = os.path.join(env.scratch("dies"), "request")
        with open(path, "wb") as file:
            file.write(predict_request("heavy", heavy_inputs(100), ()).SerializeToString())
        self.bystander.stop()  # One worker has slow calls before it: late is normal here.
        for _ in range(3):
            with subprocess.Popen([sys.executable, "-c", caller, self.daemon.target, ":".join(
                    sys.path), path], stdout=subprocess.PIPE, text=True) as client:
                try:
                    self.assertEqual(client.stdout.readline(), "sent\n")
                    wait_for(lambda: self.metric("ulfd_inflight_requests") >= 3, "calls come in",
                             step=0.001)
                finally:
                    client.kill()
            wait_for(lambda: self.metric("ulfd_inflight_requests") == 0, "they go with the client")
        self.assertGreaterEqual(self.metric("ulfd_cancelled_total"), 1)
        self.bystander = Bystander(self.daemon, stamp_request())
        self.addCleanup(self.bystander.stop)


@by_speed
class ManyFieldsTest(DaemonTest):
    """By the default limits of connections: messages under way are a small part of them."""
    CONFIG = FAST

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    def test_millions_of_fields(self):
        """Two bytes on the wire each, a hundred in memory."""
        before = self.daemon.resident_bytes()
        methods = {PREDICT: b"\x1a\0", "/inference.GRPCInferenceService/ModelInfer": b"\x2a\0",
                   "/grpc.health.v1.Health/Check": b"\x7b\x7c"}
        for path, field in methods.items():
            with self.subTest(path), Client(self.daemon) as client:
                call = client.channel.unary_unary(path)
                futures = [call.future(field * (7 << 20), timeout=60) for _ in range(6)]
                for future in futures:
                    self.assertEqual(future.code(), EXHAUSTED)
                    self.assertIn("max_request_fields", future.details())
        self.assertLess(self.daemon.resident_bytes() - before, 256 << 20)


class GuessedTokensTest(DaemonTest):
    """Calls with tokens that nobody has."""

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    @classmethod
    def setUpClass(cls):
        path = os.path.join(env.scratch("guessed"), "tokens")
        with open(path, "w", encoding="utf-8") as file:
            file.write("shop s3cret-of-the-shop\n")
        cls.CONFIG = FAST + f'authentication {{ token_file: "{path}" }}\n' \
                            "connections { max_lost_streams: 50 }\n"
        super().setUpClass()

    def test_a_connection_that_guesses_is_closed(self):
        refused = lambda: scrape(self.daemon).sum("ulfd_connections_closed_total", why="refused")
        metadata = [("authorization", "Bearer s3cret-of-the-shop")]
        self.client.Predict(stamp_request(), timeout=20, metadata=metadata)
        connection = Connection(self.daemon.grpc_port)
        self.addCleanup(connection.close)
        connection.send(frame(http2.SETTINGS, http2.ACK))
        for _ in range(1000):
            for guess in range(10):
                connection.open_stream(PREDICT, body(), more=[("authorization", f"Bearer {guess}")])
            connection.read(0.005)
            if connection.closed:
                break
        self.assertTrue(connection.closed)
        wait_for(lambda: refused() == 1, "it is counted")
        # Who has a token may call as fast as it likes, on a connection of its own.
        for _ in range(200):
            self.client.Predict(stamp_request(), timeout=20, metadata=metadata)
        self.assertEqual(refused(), 1)


class OpenStreamsTest(unittest.TestCase):
    def test_the_end_waits_for_no_stream(self):
        """drain_timeout_ms is for calls that are scored."""
        repository = os.path.join(env.scratch("open-streams"), "models")
        os.makedirs(repository)
        add_stamp(repository, 1)
        config = FAST.replace("drain_delay_ms: 50 drain_timeout_ms: 20000",
                              "drain_delay_ms: 200 drain_timeout_ms: 30000")
        self.assertNotEqual(config, FAST)
        config += 'admin_address: "127.0.0.1:0"\n'
        daemon = Daemon(repository, config=config, name="open-streams")
        self.addCleanup(daemon.kill)
        with Client(daemon) as client:
            admin_port = int(daemon.admin_target.rsplit(":", 1)[1])
            window = struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, 0)
            connections = []
            for port in (daemon.grpc_port, admin_port):
                for settings in (b"", window):
                    connection = Connection(port, settings=settings)
                    self.addCleanup(connection.close)
                    connections.append(connection)
                    connection.open_stream(REFLECTION, http2.grpc_message(b"\x3a\0"), end=False)
                    connection.open_stream(PREDICT, end=False)
                    connection.open_stream("/no.Service/Method", end=False)
                    connection.open_stream(PREDICT, body()[:-1], end=False)
                    connection.open_stream("/grpc.health.v1.Health/Watch", http2.grpc_message(b""))
                    connection.open_stream(PREDICT, body())
                    connection.read(0.2)
            self.assertEqual(client.health(), "SERVING")
            begin = time.monotonic()
            daemon.terminate()
            self.assertEqual(daemon.wait(), 0)
            self.assertLess(time.monotonic() - begin, 2.2 * env.SLOWNESS)
            self.assertTrue(all(connection.read_until(lambda: connection.closed)
                                for connection in connections))


@unittest.skipIf(env.SANITIZED, "a library loaded before that of the sanitizer")
class ClockTest(DaemonTest):
    """The wall clock is set while calls are under way."""

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)
        add_heavy(repository)

    @classmethod
    def setUpClass(cls):
        folder = env.scratch("clock")
        cls.jump = os.path.join(folder, "jump")
        with open(cls.jump, "w", encoding="utf-8") as file:
            file.write("0")
        library = os.path.join(folder, "wall_clock.so")
        source = os.path.join(env.E2E, "clients", "wall_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        cls.ENVIRONMENT = {"LD_PRELOAD": library, "WALL_CLOCK_JUMP": cls.jump}
        super().setUpClass()

    def set_clock(self, seconds):
        with open(self.jump + ".new", "w", encoding="utf-8") as file:
            file.write(str(seconds))
        os.rename(self.jump + ".new", self.jump)

    def test_the_clock_jumps(self):
        heavy = predict_request("heavy", heavy_inputs(2000), ())
        begin = time.monotonic()
        self.client.predict(heavy)
        too_short = (time.monotonic() - begin) / 4
        slow = [self.client.Predict.future(predict_request("heavy", heavy_inputs(100), ()),
                                           timeout=30) for _ in range(4)]
        for seconds in (86400, -86400, 10 * 365 * 86400, 0):
            self.set_clock(seconds)
            time.sleep(0.1)
            for _ in range(20):
                reply = self.client.predict(stamp_request(), timeout=10)
                self.assertEqual(outputs_of(reply)["score"].tolist(), [[1.0]])
            begin = time.monotonic()
            with self.assertRaises(grpc.RpcError) as caught:
                self.client.predict(heavy, timeout=too_short)
            # Refused at once by those who know that it cannot be in time, or given up.
            self.assertIn(caught.exception.code(), (DEADLINE, EXHAUSTED))
            self.assertLess(time.monotonic() - begin, 5 * env.SLOWNESS)
        for future in slow:
            future.result()
        self.set_clock(86400)
        wait_for(lambda: any(time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400)) in line
                             for line in self.status()), "the daemon's clock did jump")
        self.set_clock(0)

    def status(self):
        # An event puts a line with the time of the wall clock into the log.
        self.daemon.process.send_signal(1)
        time.sleep(0.05)
        return self.daemon.log().splitlines()
