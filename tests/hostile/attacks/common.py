"""What attacks share: how they are listed, and their side of the network with its count of bytes.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import contextlib
import dataclasses
import select
import socket
import ssl
import struct
import threading
import time
import typing

import grpc

from harness import http2
from harness.http2 import frame

PREDICT = "/ulfd.v1.PredictionService/Predict"
METADATA = "/ulfd.v1.PredictionService/GetModelMetadata"
LIST = "/ulfd.v1.PredictionService/ListModels"
INFER = "/inference.GRPCInferenceService/ModelInfer"
SERVER_METADATA = "/inference.GRPCInferenceService/ServerMetadata"
STATISTICS = "/inference.GRPCInferenceService/ModelStatistics"
INDEX = "/inference.GRPCInferenceService/RepositoryIndex"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

# Strangers have another address than the victim.
ADDRESS = "127.0.0.2"
MAKING_S = 10

REGISTERED = []


@dataclasses.dataclass
class Attack:
    name: str
    what: str
    work: typing.Callable
    scene: str = "plain"
    seconds: float = 4.0  # How long it goes on; work() ends soon after site.over() says so.
    short: bool = False
    ends_daemon: bool = False


def attack(name, what, **fields):
    """Lists the function that follows."""
    def add(work):
        REGISTERED.append(Attack(name, what, work, **fields))
        return work
    return add


class Site:
    """The attacker's side during one attack."""

    def __init__(self, scene, seconds):
        self.scene, self.daemon, self.seconds = scene, scene.daemon, seconds
        self.sent = 0
        self.doing = ""
        self.faults = []  # What must not be, beyond what is measured of every attack.
        self._answers = collections.Counter()
        self._open, self._lock = [], threading.Lock()
        self._until = None

    def begin(self):
        self._until = time.monotonic() + self.seconds

    def over(self):
        # Where others take the CPUs, the first message may take longer to make than the attack is to take.
        idle = self.sent == 0 and not self._answers
        return time.monotonic() > self._until + (MAKING_S if idle else 0) or not self.daemon.alive()

    def left(self):
        return max(0.0, self._until - time.monotonic())

    def hold(self):
        """Does nothing more until the time is over."""
        while self.left() > 0 and self.daemon.alive():
            time.sleep(0.05)

    def close(self):
        with self._lock:
            opened, self._open = self._open, []
        for thing in opened:
            try:
                thing.close()
            except OSError:
                pass

    def keep(self, thing):
        """Closes it when the attack is over."""
        with self._lock:
            self._open.append(thing)
        return thing

    def count(self, answer, times=1):
        self._answers[answer] += times

    def times(self, answer):
        return self._answers[answer]

    def answers_text(self):
        return ", ".join(f"{n} {code}" for code, n in self._answers.most_common(4))

    # Connections.

    def tcp(self, port=None, receive_buffer=None, address=ADDRESS):
        connection = socket.socket()
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.bind((address, 0))
            connection.connect(("127.0.0.1", port or self.daemon.grpc_port))
        except OSError:
            connection.close()
            raise
        return self.keep(connection)

    def tls_context(self):
        context = ssl.create_default_context(cafile=self.scene.secrets["authority"])
        context.set_alpn_protocols(["h2"])
        return context

    def tls(self, raw, context=None):
        context = context or self.tls_context()
        return self.keep(context.wrap_socket(raw, server_hostname="localhost"))

    def wire(self, settings=b"", port=None, greet=True, over=None, receive_buffer=None, address=ADDRESS):
        """A connection that speaks HTTP/2, over TLS where the daemon wants it."""
        if over is None:
            over = self.tcp(port, receive_buffer, address)
            if self.scene.secrets:
                over = self.tls(over)
        connection = http2.Connection(0, settings, greet, over)
        over.setblocking(False)
        return connection

    def push(self, connection, data, drain=True):
        """Sends it all, until the attack is over; False: it could not.  `drain`: throws away what comes."""
        over = getattr(connection, "socket", connection)
        view = memoryview(data)
        over.setblocking(False)
        while view and not self.over():
            if drain:
                self.drain(over)
            try:
                n = over.send(view[:1 << 18])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                time.sleep(0.001)
                continue
            except OSError:
                self.count("closed")
                return False
            self.sent += n
            view = view[n:]
        return not view

    @staticmethod
    def drain(over):
        try:
            while over.recv(1 << 18):
                pass
        except OSError:
            pass

    def flood(self, data, connections=1, drain=True, settings=b"", **options):
        """The same bytes again and again, on so many connections that are opened anew when they are closed."""
        wires = [None] * connections
        while not self.over():
            for i, wire in enumerate(wires):
                if wire is None:
                    try:
                        wires[i] = wire = self.wire(settings, **options)
                    except OSError:
                        self.count("refused")
                        time.sleep(0.01)
                        continue
                if not self.push(wire, data, drain) and not self.over():
                    wire.close()
                    wires[i] = None

    def streams(self, connection, path, body, n, end=True, more=(), drain=True, each=200):
        """Opens so many streams; True: it could."""
        block = http2.call_headers(path, more)
        head = struct.pack(">I", len(block))[1:] + bytes([http2.HEADERS, http2.END_HEADERS])
        tail = struct.pack(">I", len(body))[1:] + bytes([http2.DATA, http2.END_STREAM if end else 0])
        for first in range(0, n, each):
            data = bytearray()
            for _ in range(min(each, n - first)):
                stream = struct.pack(">I", connection.next_stream)
                connection.next_stream += 2
                data += head + stream + block
                if body or end:
                    data += tail + stream + body
            if not self.push(connection, bytes(data), drain):
                return False
        return True

    def deliver(self, connection, path, message, more=()):
        """One call with one message, as fast as the daemon's windows allow; False: it could not."""
        stream, connection.next_stream = connection.next_stream, connection.next_stream + 2
        if not self.push(connection, frame(http2.HEADERS, http2.END_HEADERS, stream, http2.call_headers(path, more)),
                         drain=False):
            return False
        windows = vars(connection).setdefault("windows", {0: 65535})
        windows[stream] = vars(connection).setdefault("initial", 65535)
        at = 0
        while at < len(message):
            n = min(windows[0], windows[stream], 1 << 18, len(message) - at)
            if n <= 0:
                if not getattr(connection.socket, "pending", int)():  # TLS may hold what select() does not see.
                    select.select([connection.socket], [], [], 0.02)
                connection.read(0.0005)
                self._open_windows(connection, windows)
                if self.over() or connection.closed:
                    return False
                continue
            pieces = [message[i:i + 16384] for i in range(at, at + n, 16384)]
            pieces[-1] = pieces[-1][:n - 16384 * (len(pieces) - 1)]
            at += n
            windows[0] -= n
            windows[stream] -= n
            if not self.push(connection, b"".join(
                    frame(http2.DATA, http2.END_STREAM * (at == len(message) and i == len(pieces) - 1), stream, piece)
                    for i, piece in enumerate(pieces)), drain=False):
                return False
        return True

    def answered(self, connection):
        """Waits for the end of the last call, of the connection, or of the attack."""
        stream = connection.next_stream - 2
        while not self.over() and not connection.closed:
            if any(f[2] == stream and (f[0] == http2.RST_STREAM or f[1] & http2.END_STREAM) for f in connection.frames):
                self.count("answered")
                connection.frames.clear()
                return
            connection.read(0.05)
        self.count("closed" if connection.closed else "no answer")

    def _open_windows(self, connection, windows):
        """Takes in what the daemon allows, and answers as a proper client: it opens windows for those only."""
        for kind, flags, stream, payload in connection.frames:
            if kind in (http2.SETTINGS, http2.PING) and not flags & http2.ACK:
                self.push(connection, frame(kind, http2.ACK, 0, payload if kind == http2.PING else b""), drain=False)
            if kind == http2.WINDOW_UPDATE:
                windows[stream] = windows.get(stream, 0) + int.from_bytes(payload, "big")
            elif kind == http2.SETTINGS and not flags & http2.ACK:
                for i in range(0, len(payload), 6):
                    if payload[i:i + 2] == b"\0\4":
                        value = int.from_bytes(payload[i + 2:i + 6], "big")
                        for open_stream in windows:
                            if open_stream:
                                windows[open_stream] += value - connection.initial
                        connection.initial = value
        connection.frames.clear()

    # Calls of a client that is correct but for what it asks.

    def call(self, path, message, timeout=2.0, metadata=None):
        """One call on a channel that is kept; its code's name."""
        code = self.future(path, message, timeout, metadata).code().name
        return code

    def relay(self):
        """A port that leads to the daemon's, from ADDRESS: channels of gRPC cannot choose theirs."""
        listener = self.keep(socket.create_server(("127.0.0.1", 0)))

        def pump(source, to):
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 18):
                    to.sendall(data)
            for end in (source, to):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    near = self.keep(listener.accept()[0])
                    far = self.tcp()
                    for end in (near, far):
                        end.settimeout(None)
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    for ends in ((near, far), (far, near)):
                        threading.Thread(target=pump, args=ends, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return listener.getsockname()[1]

    def channel(self):
        if not hasattr(self, "_channel"):
            options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                       ("grpc.use_local_subchannel_pool", 1), ("grpc.max_metadata_size", 1 << 24)]
            if self.scene.secrets:
                with open(self.scene.secrets["authority"], "rb") as file:
                    credentials = grpc.ssl_channel_credentials(file.read())
                self._channel = grpc.secure_channel(f"localhost:{self.relay()}", credentials, options)
            else:
                self._channel = grpc.insecure_channel(f"127.0.0.1:{self.relay()}", options)
            self.keep(self._channel)
        return self._channel

    def future(self, path, message, timeout=2.0, metadata=None):
        self.sent += len(message)
        future = self.channel().unary_unary(path).future(message, timeout=timeout, metadata=metadata)
        future.add_done_callback(lambda f: self.count(f.code().name if f.code() else "?"))
        return future


def in_parallel(work, n):
    """Runs work(i) in n threads and waits; connections may end under their hands."""
    def run(i):
        with contextlib.suppress(OSError):
            work(i)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def varint(n):
    out = b""
    n &= (1 << 64) - 1
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, data):
    """A length-delimited field of a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


__all__ = [name for name in dir() if not name.startswith("_")] + ["frame"]
