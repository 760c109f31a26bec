"""Just enough HTTP/2 to send what no proper client would.
SPDX-License-Identifier: Apache-2.0
"""
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = \
    0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CANCEL, INITIAL_WINDOW_SIZE = 8, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _text(text):
    text = text.encode() if isinstance(text, str) else text
    size, out = len(text), b""
    if size < 127:
        return bytes([size]) + text
    size, out = size - 127, b"\x7f"
    while size >= 128:
        out, size = out + bytes([size % 128 + 128]), size // 128
    return out + bytes([size]) + text


def header_block(fields):
    """HPACK: literals that are not indexed."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def call_headers(path, more=()):
    return header_block([(":method", "POST"), (":scheme", "http"), (":path", path),
                         (":authority", "test"), ("te", "trailers"),
                         ("content-type", "application/grpc"), *more])


def grpc_message(message):
    return b"\0" + struct.pack(">I", len(message)) + message


class Connection:
    """A raw connection; `frames` holds the (kind, flags, stream, payload) that came."""

    def __init__(self, port, settings=b"", greet=True, over=None):
        """over: a connected socket (TLS, Unix) to use instead of the port."""
        self.socket = over or socket.create_connection(("127.0.0.1", port), timeout=20)
        if over is None:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = []
        self._rest = b""
        self.closed = False
        self.next_stream = 1
        if greet:
            self.send(PREFACE + frame(SETTINGS, payload=settings))

    def send(self, data):
        """False: the other side has closed the connection."""
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True
        return not self.closed

    def open_stream(self, path, body=b"", end=True, more=()):
        """Sends a call; returns its stream."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        data = frame(HEADERS, END_HEADERS, stream, call_headers(path, more))
        if body or end:
            data += frame(DATA, END_STREAM if end else 0, stream, body)
        self.send(data)
        return stream

    def read(self, seconds):
        """Reads what comes in that time, or until the connection ends."""
        until = time.monotonic() + seconds
        while not self.closed and time.monotonic() < until:
            self.socket.settimeout(max(0.001, until - time.monotonic()))
            try:
                got = self.socket.recv(65536)
            except socket.timeout:
                return self
            except OSError:
                got = b""
            self.closed = not got
            self._rest += got
            while len(self._rest) >= 9:
                size = int.from_bytes(self._rest[:3], "big")
                if len(self._rest) < 9 + size:
                    break
                kind, flags, stream = struct.unpack(">BBI", self._rest[3:9])
                self.frames.append((kind, flags, stream, self._rest[9:9 + size]))
                self._rest = self._rest[9 + size:]
        return self

    def read_until(self, condition, seconds=20):
        until = time.monotonic() + seconds
        while not condition() and not self.closed and time.monotonic() < until:
            self.read(0.05)
        return condition()

    def of(self, kind):
        return [f for f in self.frames if f[0] == kind]

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()
