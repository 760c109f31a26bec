"""HTTP/2 and gRPC as no proper client speaks them; no token is needed for any of these.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import socket
import struct
import subprocess
import sys
import time
import zlib

import grpc

from harness import http2
from attacks.common import (CHECK, INDEX, INFER, LIST, METADATA, PREDICT, REFLECTION, REGISTERED, SERVER_METADATA,
                             STATISTICS, WATCH, Attack, attack, field, frame, in_parallel)

NO_WINDOW = struct.pack(">HI", http2.INITIAL_WINDOW_SIZE, 0)
CANCEL = struct.pack(">I", http2.CANCEL)
GZIP, DEFLATE = 31, 15
EMPTY = http2.grpc_message(b"")
DIN = http2.grpc_message(field(1, field(1, b"din")))
REFLECT_LIST = http2.grpc_message(field(7, b"*"))
REFLECT_SYMBOL = http2.grpc_message(field(4, b"inference.GRPCInferenceService"))


@attack("control: nothing", "no attack at all: what the table says then is the noise", short=True)
def control(site):
    site.hold()


def sink(site):
    """Not an attack on the daemon: the same work of attacker and kernel, aimed at a process that only reads."""
    listener = site.keep(socket.create_server(("127.0.0.1", 0)))
    reader = subprocess.Popen([sys.executable, "-c", "import socket\nlistener = socket.socket(fileno=%d)\nwhile True:\n"
                               "    connection = listener.accept()[0]\n    while connection.recv(65536): pass"
                               % listener.fileno()], pass_fds=[listener.fileno()])
    try:
        site.flood(frame(http2.SETTINGS) * 5000, port=listener.getsockname()[1])
    finally:
        reader.kill()
        reader.wait()


@attack("slow preface", "500 connections that send the preface a byte at a time")
def slow_preface(site):
    connections = [site.tcp() for _ in range(500)]
    for i in range(len(http2.PREFACE)):
        for connection in connections:
            site.push(connection, http2.PREFACE[i:i + 1])
        time.sleep(0.15)


@attack("silent connections", "3000 connections that say nothing")
def silent(site):
    for _ in range(3000):
        site.tcp()
    site.hold()


@attack("idle connections", "3000 connections that greet and call nothing", seconds=6)
def idle(site):
    for _ in range(3000):
        if site.over():
            break
        site.push(site.wire(greet=False), http2.PREFACE + frame(http2.SETTINGS) + frame(http2.SETTINGS, http2.ACK))
    site.hold()


@attack("connection flood", "connects and closes as fast as it can, from four threads")
def connection_flood(site):
    def work(_):
        while not site.over():
            try:
                connection = site.tcp()
                site.count("connected")
                connection.close()
            except OSError:
                site.count("refused")
    in_parallel(work, 4)


@attack("greetings without end", "connects, greets, calls and leaves without waiting")
def greetings(site):
    hello = (http2.PREFACE + frame(http2.SETTINGS) +
             frame(http2.HEADERS, http2.END_HEADERS, 1, http2.call_headers(PREDICT)) +
             frame(http2.DATA, 1, 1, DIN))

    def work(_):
        while not site.over():
            connection = site.tcp()
            site.push(connection, hello, drain=False)
            connection.close()
    in_parallel(work, 4)


def _greetings(path, count, attackers, site):
    calls = b"".join(frame(http2.HEADERS, http2.END_HEADERS, s, http2.call_headers(path)) +
                     frame(http2.DATA, http2.END_STREAM, s, EMPTY) for s in range(1, 2 * count, 2))

    def work(_):
        while not site.over():
            wire = site.wire()
            site.push(wire, calls, drain=False)
            wire.close()
    in_parallel(work, attackers)


@attack("greetings with 20 calls", "2000 connections a second that bring 20 empty calls each, and leave", seconds=8)
def greetings_with_calls(site):
    _greetings(PREDICT, 20, 1, site)


@attack("greetings with 400 calls", "hundreds of connections a second that bring 400 checks each, and leave", seconds=8)
def greetings_with_many_calls(site):
    _greetings(CHECK, 400, 4, site)


@attack("greetings with calls in pieces", "connections that bring 20 checks at a time, twenty times, and read replies", seconds=8, short=True)
def greetings_in_pieces(site):
    def work(_):
        while not site.over():
            wire = site.wire()
            for _ in range(20):
                if not site.streams(wire, CHECK, EMPTY, 20):
                    break
            wire.close()
    in_parallel(work, 4)


def _end_together(end, more, site):
    while not site.over():
        wires = [site.wire() for _ in range(40)]
        for wire in wires:
            site.streams(wire, PREDICT, b"", 400, end=False, more=more)
        time.sleep(0.8)
        for wire in wires:
            end(site, wire)
        time.sleep(0.3)
        for wire in wires:
            wire.close()


for _name, _end, _more, _short in (
        ("closed", lambda site, wire: wire.close(), (), True),
        ("reset", lambda site, wire: site.push(wire, b"".join(
            frame(http2.RST_STREAM, 0, stream, CANCEL) for stream in range(1, 801, 2))), (), False),
        ("ended by a wrong frame", lambda site, wire: site.push(wire, frame(http2.RST_STREAM, 0, 1, bytes(3))), (), False),
        ("timed out", lambda site, wire: None, [("grpc-timeout", "800m")], False)):
    REGISTERED.append(Attack(f"calls {_name} together", "40 connections of 400 calls without message, again and again",
                             functools.partial(_end_together, _end, _more), seconds=6, short=_short))


def _frames(name, what, data, short=False, **options):
    REGISTERED.append(Attack(name, what, lambda site: site.flood(data, **options), short=short))


def _settings(*pairs):
    return b"".join(struct.pack(">HI", *pair) for pair in pairs)


_frames("SETTINGS flood", "empty SETTINGS frames, answers read", frame(http2.SETTINGS) * 5000, True)
_frames("SETTINGS flood, answers not read", "each wants an ACK, none is taken", frame(http2.SETTINGS) * 5000, drain=False)
_frames("SETTINGS of 2700 values", "frames of 16 KB", frame(http2.SETTINGS, 0, 0, _settings((1, 4096), (4, 65535)) * 1365) * 10)
_frames("PING flood", "pings, answers read", frame(http2.PING, 0, 0, bytes(8)) * 5000)
_frames("PING flood, answers not read", "pings, no answer is taken", frame(http2.PING, 0, 0, bytes(8)) * 5000, drain=False)
_frames("PRIORITY flood", "priorities of streams that are not there",
        b"".join(frame(http2.PRIORITY, 0, s, struct.pack(">IB", s + 2, 7)) for s in range(1, 10001, 2)))
_frames("WINDOW_UPDATE flood", "the connection's window by one byte",
        frame(http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 5000)
_frames("unknown frames", "frames of a type that nobody knows", frame(0x55, 0xff, 0, bytes(100)) * 1000)
_frames("RST_STREAM of nothing", "resets of streams that were never there",
        b"".join(frame(http2.RST_STREAM, 0, s, CANCEL) for s in range(1, 10001, 2)))
_frames("GOAWAY flood", "good-byes without end", frame(http2.GOAWAY, 0, 0, bytes(8) + b"x" * 100) * 1000)


@attack("empty DATA frames", "DATA without data on an open call")
def empty_data(site):
    wire = site.wire()
    site.streams(wire, PREDICT, b"", 1, end=False)
    while not site.over() and site.push(wire, frame(http2.DATA, 0, 1) * 5000):
        pass


@attack("padded DATA frames", "DATA that is 255 bytes of padding and one byte of message")
def padding(site):
    wire = site.wire()
    site.streams(wire, PREDICT, b"\0" + struct.pack(">I", 1 << 24), 1, end=False)
    while not site.over() and site.push(wire, frame(http2.DATA, 8, 1, b"\xff" + b"x" + bytes(255)) * 500):
        pass


@attack("DATA frames of a byte", "8 connections, messages of 16 MB in them", short=True, seconds=8)
def bytes_in_frames(site):
    def work(_):
        while not site.over():
            wire = site.wire()
            site.streams(wire, PREDICT, b"\0" + struct.pack(">I", 1 << 24), 1, end=False)
            while not site.over() and site.push(wire, frame(http2.DATA, 0, 1, b"\x1a") * 20000):
                pass
            wire.close()
    in_parallel(work, 8)


def _calls_and_more(path, body, behind, site):
    """Calls without end, each with what `behind(stream)` gives behind it."""
    while not site.over():
        wire = site.wire()
        block = http2.call_headers(path)
        while not site.over():
            data = bytearray()
            for _ in range(100):
                stream, wire.next_stream = wire.next_stream, wire.next_stream + 2
                data += (frame(http2.HEADERS, http2.END_HEADERS, stream, block) + frame(http2.DATA, 1, stream, body) +
                         behind(stream))
            if not site.push(wire, data):
                break
        wire.close()


for _path, _body, _name, _short in ((CHECK, EMPTY, "Check", True), (PREDICT, DIN, "Predict", False),
                                    (METADATA, DIN, "GetModelMetadata", False),
                                    (REFLECTION, REFLECT_LIST, "reflection", False), (WATCH, EMPTY, "Watch", False)):
    REGISTERED.append(Attack(f"rapid reset of {_name}", "calls that are reset at once",
                             functools.partial(_calls_and_more, _path, _body,
                                               lambda s: frame(http2.RST_STREAM, 0, s, CANCEL)), short=_short))


# Calls that the daemon itself resets: they count no longer as open, and their work may go on.
for _name, _behind in (
        ("WINDOW_UPDATE of 0", lambda s: frame(http2.WINDOW_UPDATE, 0, s, bytes(4))),
        ("a window beyond 2^31", lambda s: frame(http2.WINDOW_UPDATE, 0, s, struct.pack(">I", 0x7fffffff)) * 2),
        ("DATA behind the end", lambda s: frame(http2.DATA, 0, s, b"x" * 100)),
        ("HEADERS behind the end", lambda s: frame(http2.HEADERS, http2.END_HEADERS | 1, s, b"\x90")),
        ("PRIORITY on itself", lambda s: frame(http2.PRIORITY, 0, s, struct.pack(">IB", s, 7))),
        ("PRIORITY of 4 bytes", lambda s: frame(http2.PRIORITY, 0, s, bytes(4))),
        ("RST_STREAM of 3 bytes", lambda s: frame(http2.RST_STREAM, 0, s, bytes(3)))):
    REGISTERED.append(Attack(f"resets asked for: {_name}", "a frame behind each call that is against the rules",
                             functools.partial(_calls_and_more, PREDICT, DIN, _behind), short=_name == "DATA behind the end"))


# Headers.

def _endless(first, piece, site):
    while not site.over():
        wire = site.wire()
        site.push(wire, frame(http2.HEADERS, 0, 1, http2.call_headers(PREDICT) + first))
        data = frame(http2.CONTINUATION, 0, 1, piece)
        while not site.over() and site.push(wire, data * 16):
            pass
        wire.close()


MANY = http2.header_block([("x-more", "y" * 1000)] * 16)
ONE = b"\0\x06x-more\x7f\xff\xff\xff\xff\x03"
for _name, _what, _first, _piece, _short in (
        ("headers without end", "CONTINUATION frames full of headers", b"", MANY, True),
        ("one header without end", "one header of a gigabyte, it says", ONE, bytes(16384), True),
        ("empty CONTINUATION frames", "frames that continue nothing", b"", b"", False),
        ("indexed headers without end", "one byte is a header of the static table", b"", b"\x90" * 16384, False),
        ("table size updates without end", "the HPACK table to and fro", b"", (b"\x20" + b"\x3f\xe1\x1f") * 4000, False)):
    REGISTERED.append(Attack(_name, _what, functools.partial(_endless, _first, _piece), short=_short))


@attack("indexed headers, slowly", "half a megabyte a second: no moment shows how much they take", seconds=14)
def slow_indexed_headers(site):
    data = frame(http2.CONTINUATION, 0, 1, b"\x90" * 16384)
    while not site.over():
        wire = site.wire()
        alive = site.push(wire, frame(http2.HEADERS, 0, 1, http2.call_headers(PREDICT)))
        while alive and not site.over():
            alive = site.push(wire, data)
            time.sleep(len(data) / (1 << 19))
        wire.close()


@attack("indexed headers on many connections", "600 that send 15 KB of them each, as much as a handshake")
def many_indexed_headers(site):
    data = (frame(http2.HEADERS, 0, 1, http2.call_headers(PREDICT)) +
            frame(http2.CONTINUATION, 0, 1, b"\x90" * 15500))
    for _ in range(600):
        try:
            site.push(site.wire(), data)
        except OSError:
            site.count("refused")
    site.hold()


def _call(wire, path, block, body=None):
    """A call's frames: without a message it never becomes one for the daemon."""
    stream, wire.next_stream = wire.next_stream, wire.next_stream + 2
    data = frame(http2.HEADERS, http2.END_HEADERS, stream, http2.call_headers(path) + block)
    return data if body is None else data + frame(http2.DATA, http2.END_STREAM, stream, body)


@attack("indexed headers on many streams", "40 connections of 400 calls each without message, as many headers as one may have")
def indexed_headers_on_streams(site):
    block = b"\x90" * 250
    for _ in range(40):
        try:
            wire = site.wire()
            site.push(wire, b"".join(_call(wire, PREDICT, block) for _ in range(400)))
        except OSError:
            site.count("refused")
    site.hold()


@attack("indexed headers, a few bytes at a time", "the same, but no piece that the daemon reads takes much")
def indexed_headers_in_pieces(site):
    wires = [site.wire() for _ in range(40)]
    for _ in range(400):
        calls = [_call(wire, PREDICT, b"\x90" * 250) for wire in wires]
        for at in range(0, len(calls[0]), 14):
            for i, wire in enumerate(wires):
                if not wire.closed:
                    wire.closed = not site.push(wire, calls[i][at:at + 14])
        if site.over():
            break
    site.hold()


@attack("indexed headers behind a message", "as trailers of 40 x 400 calls whose message is not complete")
def indexed_trailers(site):
    trailers = b"\x90" * 250
    for _ in range(40):
        wire = site.wire()
        for _ in range(400):
            stream = wire.next_stream
            if not site.push(wire, _call(wire, PREDICT, b"") + frame(http2.DATA, 0, stream, DIN[:-1]) +
                             frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, stream, trailers)):
                break
    site.hold()


@attack("control: calls with 4 KiB of metadata", "100 connections, 100 calls each at a time: all must be answered", seconds=14)
def legal_metadata(site):
    more = [(f"x-{i}", "m" * 500) for i in range(8)]
    wires = [site.wire() for _ in range(100)]
    for wire in wires:
        site.streams(wire, CHECK, b"", 100, end=False, more=more)
    time.sleep(1.5)
    for wire in wires:
        data = b"".join(frame(http2.DATA, http2.END_STREAM, stream, EMPTY) for stream in range(1, 201, 2))
        if not site.push(wire, data, drain=False):
            continue
        ended = lambda: sum(1 for f in wire.frames if f[0] == http2.HEADERS and f[1] & http2.END_STREAM)
        wire.read_until(lambda: ended() >= 100, 5)
        site.count("answered", ended())
    if site.times("answered") != 10000:
        site.faults.append(f"{site.times('answered')} of 10000 calls were answered")


@attack("headers of a stream that is over", "complete frames that hold a piece of one header", short=True)
def headers_of_ended_stream(site):
    while not site.over():
        wire = site.wire()
        site.push(wire, _call(wire, CHECK, b"", EMPTY))
        data = frame(http2.HEADERS, http2.END_HEADERS, 1, ONE + bytes(8000))
        while not site.over() and site.push(wire, data):
            pass
        wire.close()


@attack("indexed headers between calls", "4 connections, 400 calls with 15 KB of them and no message, a Check after each")
def indexed_headers_between_calls(site):
    for _ in range(4):
        wire = site.wire()
        for _ in range(400):
            if not site.push(wire, _call(wire, PREDICT, b"\x90" * 15500) + _call(wire, CHECK, b"", EMPTY)):
                break
    site.hold()


@attack("a header of 10 MB", "one call with one header of 10 MB, complete; four connections")
def large_header(site):
    block = http2.call_headers(PREDICT) + b"\0" + http2.header_block([("x-large", "x" * 10_000_000)])[1:]
    pieces = [block[i:i + 16384] for i in range(0, len(block), 16384)]
    data = frame(http2.HEADERS, 0, 1, pieces[0])
    data += b"".join(frame(http2.CONTINUATION, http2.END_HEADERS * (i == len(pieces) - 2), 1, piece)
                     for i, piece in enumerate(pieces[1:]))
    in_parallel(lambda _: site.push(site.wire(), data), 4)


@attack("HPACK bomb", "a header of 4 KB enters the table once, then one byte each names it 16 000 times a call")
def hpack_bomb(site):
    while not site.over():
        wire = site.wire()
        large = b"\x40" + http2.header_block([("x-bomb", "b" * 3900)])[1:]
        site.push(wire, frame(http2.HEADERS, http2.END_HEADERS | 1, 1, http2.call_headers(CHECK) + large))
        block = http2.call_headers(CHECK) + b"\xbe" * 16000
        stream = 3
        while not site.over() and site.push(wire, frame(http2.HEADERS, http2.END_HEADERS | 1, stream, block)):
            stream += 2
        wire.close()


@attack("metadata just below the limit", "calls of GetModelMetadata with 15 KB of metadata each", short=True)
def large_metadata(site):
    more = [(f"x-{i}", "m" * 1000) for i in range(14)]
    while not site.over():
        wire = site.wire()
        while not site.over() and site.streams(wire, METADATA, DIN, 50, more=more):
            pass
        wire.close()


# Streams and bodies.

@attack("trickled bodies", "10 connections, 100 calls each, a byte of a 16 MB message at a time")
def trickle(site):
    wires = [site.wire() for _ in range(10)]
    for wire in wires:
        site.streams(wire, PREDICT, b"\0" + struct.pack(">I", 16 << 20), 100, end=False)
    while not site.over():
        for wire in wires:
            site.push(wire, b"".join(frame(http2.DATA, 0, s, b"\x1a") for s in range(1, 201, 2)))
        time.sleep(0.05)


@attack("messages that are never complete", "100 connections, 16 MB promised, all but a byte sent")
def incomplete(site):
    message = b"\0" + struct.pack(">I", 16 << 20) + bytes((16 << 20) - 1)

    def work(_):
        wire = site.wire()
        site.deliver(wire, PREDICT, message + b"\0")
    in_parallel(work, 100)
    site.hold()


@attack("beyond every window", "100 connections, 16 MB promised, as much sent as the kernel takes", short=True)
def beyond_windows(site):
    wires = [site.wire() for _ in range(100)]
    for wire in wires:
        site.streams(wire, PREDICT, b"\0" + struct.pack(">I", 16 << 20), 1, end=False)
    data = frame(http2.DATA, 0, 1, bytes(16384))
    while not site.over():
        for wire in wires:
            site.drain(wire.socket)
            try:
                site.sent += wire.socket.send(data)
            except OSError:
                pass


@attack("half-open streams", "20 connections with 900 calls each that have no message", short=True, seconds=6)
def half_open(site):
    for path in (PREDICT, METADATA, CHECK, INFER):
        for _ in range(5):
            site.streams(site.wire(), path, b"", 900, end=False)
    site.hold()


@attack("20 000 streams, SETTINGS never acknowledged", "calls without end of the message")
def unacknowledged(site):
    site.streams(site.wire(), PREDICT, DIN[:-1], 20000, end=False)
    site.hold()


def _window_zero(path, body, n, options, site):
    site.streams(site.wire(NO_WINDOW, **options), path, body, n, drain=not options)
    site.hold()


for _name, _path, _body, _n, _short in (
        ("GetModelMetadata", METADATA, DIN, 20000, True), ("Check", CHECK, EMPTY, 40000, True),
        ("ListModels", LIST, EMPTY, 20000, False), ("ServerMetadata", SERVER_METADATA, EMPTY, 40000, False),
        ("ModelStatistics", STATISTICS, EMPTY, 20000, False), ("RepositoryIndex", INDEX, EMPTY, 20000, False),
        ("reflection", REFLECTION, REFLECT_SYMBOL, 5000, False), ("Watch", WATCH, EMPTY, 20000, False)):
    REGISTERED.append(Attack(f"window of 0, {_n} x {_name}", "replies that cannot be sent pile up",
                             functools.partial(_window_zero, _path, _body, _n, {}), seconds=6, short=_short))
    REGISTERED.append(Attack(f"nothing is read, {_n} x {_name}", "the same; a TCP window that closes",
                             functools.partial(_window_zero, _path, _body, _n, {"receive_buffer": 4096}), seconds=6))


@attack("window of 0, 30 connections x 900 calls", "each below the limit of streams; ListModels", seconds=6, short=True)
def many_windows(site):
    for _ in range(30):
        wire = site.wire(NO_WINDOW)
        site.push(wire, frame(http2.SETTINGS, http2.ACK))
        site.streams(wire, LIST, EMPTY, 900)
    site.hold()


def _many_addresses(connections, options, site):
    """Wires first: all of them ask at once."""
    body = http2.grpc_message(field(1, field(1, b"many_inputs")))
    wires = []
    for n in range(20):
        for _ in range(connections):
            wires.append(site.wire(NO_WINDOW, address=f"127.0.0.{n + 2}", **options))
            site.push(wires[-1], frame(http2.SETTINGS, http2.ACK))
    for wire in wires:
        site.streams(wire, METADATA, body, 500, drain=not options)
    site.hold()


for _connections, _short in ((2, True), (10, False)):
    REGISTERED.append(Attack(f"window of 0, 20 addresses x {_connections} x 500", "GetModelMetadata of 210 inputs",
                             functools.partial(_many_addresses, _connections, {}), seconds=6, short=_short))
    REGISTERED.append(Attack(f"nothing is read, 20 addresses x {_connections} x 500", "the same",
                             functools.partial(_many_addresses, _connections, {"receive_buffer": 4096}), seconds=6))


@attack("windows opened and closed", "900 replies wait while SETTINGS change every stream's window", short=True)
def toggled_windows(site):
    wire = site.wire(NO_WINDOW)
    site.push(wire, frame(http2.SETTINGS, http2.ACK))
    site.streams(wire, LIST, EMPTY, 900)
    to_and_fro = frame(http2.SETTINGS, 0, 0, _settings((4, 0))) + frame(http2.SETTINGS, 0, 0, _settings((4, 1)))
    while not site.over() and site.push(wire, to_and_fro * 1000):
        pass


@attack("replies one byte at a time", "WINDOW_UPDATE of one byte for each of 900 streams")
def one_byte_windows(site):
    wire = site.wire(NO_WINDOW)
    site.streams(wire, LIST, EMPTY, 900)
    one = b"".join(frame(http2.WINDOW_UPDATE, 0, s, struct.pack(">I", 1)) for s in range(1, 1801, 2))
    while not site.over() and site.push(wire, one):
        pass


@attack("unknown methods", "calls of /no.such/Method without end", short=True)
def unknown_methods(site):
    while not site.over():
        wire = site.wire()
        while not site.over() and site.streams(wire, "/no.such/Method", DIN, 400):
            pass
        wire.close()


@attack("paths of 10 KB", "unknown methods with long names")
def long_paths(site):
    while not site.over():
        wire = site.wire()
        while not site.over() and site.streams(wire, "/" + "x" * 10000, DIN, 50):
            pass
        wire.close()


@attack("flood of Check", "health checks as fast as they are taken", short=True)
def check_flood(site):
    wire = site.wire()
    while not site.over() and site.streams(wire, CHECK, EMPTY, 200, each=100):
        pass


@attack("flood of reflection", "the largest file is asked for again and again, a call each; answers are read")
def reflection_flood(site):
    while not site.over():
        wire = site.wire()
        while not site.over() and site.streams(wire, REFLECTION, REFLECT_SYMBOL, 100, each=50):
            pass
        wire.close()


@attack("1500 idle reflection streams", "each stays open and asks nothing", seconds=6, short=True)
def idle_reflection(site):
    for _ in range(3):
        site.streams(site.wire(), REFLECTION, b"", 500, end=False)
    site.hold()


@attack("requests without end on reflection streams", "8 connections of 8 streams that take every reply", short=True)
def reflection_requests(site):
    wires = [site.wire(_settings((http2.INITIAL_WINDOW_SIZE, 0x7fffffff))) for _ in range(8)]
    for wire in wires:
        site.push(wire, frame(http2.WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7fff0000)))
        site.streams(wire, REFLECTION, b"", 8, end=False)
    while not site.over():
        for wire in wires:
            site.push(wire, b"".join(frame(http2.DATA, 0, stream, REFLECT_SYMBOL * 50) for stream in range(1, 17, 2)))


def watch_too(site):
    """A watcher beside those of the attack must get its answer."""
    try:
        first = next(site.channel().unary_stream(WATCH)(b"", timeout=5))
    except grpc.RpcError as error:
        first = f"{error.code().name} {error.details()}"
    if first != b"\x08\x01":
        site.faults.append(f"another watcher got {first}")


@attack("1000 health watches", "on one connection; another watcher must get its answer", short=True)
def health_watches(site):
    site.streams(site.wire(), WATCH, EMPTY, 1000, end=False)
    time.sleep(0.5)
    watch_too(site)
    site.hold()


@attack("health watches on 20 connections", "900 each")
def more_watches(site):
    for _ in range(20):
        site.streams(site.wire(), WATCH, EMPTY, 900, end=False)
    time.sleep(0.5)
    watch_too(site)
    site.hold()


@attack("watches with names of 16 MB", "4 connections, 8 each", seconds=6, short=True)
def large_watches(site):
    message = http2.grpc_message(field(1, b"n" * ((16 << 20) - 100)))

    def work(_):
        wire = site.wire()
        for _ in range(8):
            if not site.deliver(wire, WATCH, message):
                break
    in_parallel(work, 4)
    site.hold()


@attack("watches of unknown services", "10 connections, 1000 names of 10 KB each")
def unknown_watches(site):
    for i in range(10):
        body = http2.grpc_message(field(1, str(i).encode() + b"n" * 10000))
        site.streams(site.wire(), WATCH, body, 1000, end=False, each=20)
    site.hold()


# Compressed messages.

def bomb(size, bits, content=b"\0" * (1 << 20)):
    """So many bytes as gzip or zlib, as a message of gRPC that says that it is compressed."""
    packer = zlib.compressobj(1, zlib.DEFLATED, bits)
    out = b"".join(packer.compress(content) for _ in range(size // len(content))) + packer.flush()
    return b"\1" + struct.pack(">I", len(out)) + out


_BOMBS = {}


def send_bomb(site, path, size, encoding, connections, more=()):
    key = (size, encoding)
    if key not in _BOMBS:
        _BOMBS[key] = bomb(size, GZIP if encoding == "gzip" else DEFLATE, bytes(1 << 24))
        site.begin()  # Making it is not part of the attack.
    def work(_):
        wire = site.wire()
        if site.deliver(wire, path, _BOMBS[key], [("grpc-encoding", encoding), *more]):
            site.answered(wire)
    site.doing = "the bomb"
    in_parallel(work, connections)


for _name, _path, _size, _encoding, _connections, _short in (
        ("gzip bomb, 512 MB, Check", CHECK, 512 << 20, "gzip", 1, True),
        ("gzip bomb, 512 MB, Predict", PREDICT, 512 << 20, "gzip", 1, False),
        ("gzip bomb, 512 MB, reflection", REFLECTION, 512 << 20, "gzip", 1, False),
        ("gzip bomb, 512 MB, Watch", WATCH, 512 << 20, "gzip", 1, False),
        ("gzip bomb, 512 MB, unknown method", "/no.such/Method", 512 << 20, "gzip", 1, False),
        ("gzip bomb, 4 GB, Check", CHECK, 4 << 30, "gzip", 1, False),
        ("deflate bomb, 512 MB, Check", CHECK, 512 << 20, "deflate", 1, False),
        ("8 gzip bombs of 200 MB, Check", CHECK, 200 << 20, "gzip", 8, False)):
    REGISTERED.append(Attack(_name, "zeros that are less than a hundredth of it on the wire", functools.partial(
        lambda path, size, encoding, n, site: send_bomb(site, path, size, encoding, n), _path, _size, _encoding,
        _connections), short=_short))


@attack("SIGTERM with streams of every kind open", "the daemon must end in drain delay + 2 s", ends_daemon=True, short=True)
def sigterm(site):
    for path, body in ((REFLECTION, b""), (REFLECTION, REFLECT_LIST), (WATCH, EMPTY), (PREDICT, b""), (PREDICT, DIN[:-1]),
                       (CHECK, b"")):
        site.streams(site.wire(), path, body, 20, end=False)
        site.streams(site.wire(NO_WINDOW), path, body, 20, end=False)
    site.streams(site.wire(NO_WINDOW), LIST, EMPTY, 100)
    site.streams(site.wire(), PREDICT, b"", 20, end=False, more=[("x-large", "x" * 10000)])
    endless = site.wire()
    site.push(endless, frame(http2.HEADERS, 0, 1, http2.call_headers(PREDICT)))
    site.tcp()
    site.hold()
    site.scene.end_now(site)
