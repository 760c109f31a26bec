"""A daemon with TLS and tokens, and an attacker who has neither certificate nor token.
SPDX-License-Identifier: Apache-2.0
"""
import functools
import itertools
import os
import ssl
import struct
import subprocess
import time

from harness import http2
from harness.http2 import frame
from attacks.common import (CHECK, INFER, METADATA, PREDICT, REFLECTION, REGISTERED, WATCH, Attack, attack, in_parallel)
from attacks.requests import FIELDS, LIMIT, _fields
from attacks.wire import DIN, EMPTY, NO_WINDOW, send_bomb

CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(256)) * 2


@attack("TLS: handshakes without end", "complete ones, four threads", scene="guarded", short=True)
def handshakes(site):
    def work(_):
        while not site.over():
            try:
                site.tls(site.tcp()).close()
                site.count("handshake")
            except OSError:
                site.count("refused")
    in_parallel(work, 4)


@attack("TLS: half a handshake", "2000 connections that say hello and wait", scene="guarded")
def half_handshakes(site):
    for _ in range(2000):
        if site.over():
            break
        site.push(site.tcp(), CLIENT_HELLO[:200], drain=False)
    site.hold()


def _long_hellos(site, sent):
    """6000 connections, of whose hello of 130 KB so many bytes are sent"""
    hello = b"\1" + struct.pack(">I", 131_000)[1:] + bytes(131_000 - 1)
    records = b"".join(struct.pack(">BHH", 22, 0x301, len(hello[i:i + 16384])) + hello[i:i + 16384]
                       for i in range(0, len(hello), 16384))

    def work(_):
        for _ in range(1500):
            if site.over():
                break
            site.push(site.tcp(), records[:sent], drain=False)
    in_parallel(work, 4)
    site.hold()


@attack("TLS: hellos of 130 KB", "as long as OpenSSL takes, all but the last byte, on 6000 connections", scene="guarded", seconds=9)
def long_hellos(site):
    _long_hellos(site, 131_000)


@attack("TLS: hellos of 130 KB announced", "their first 100 bytes, on 6000 connections", scene="guarded", seconds=9)
def announced_hellos(site):
    _long_hellos(site, 100)


@attack("TLS: clients that all come back", "1500 connect and say hello at once; all must be let in", scene="guarded", seconds=9)
def storm(site):
    context = site.tls_context()
    clients = []
    for _ in range(1500):
        raw = site.tcp()
        raw.setblocking(False)
        clients.append(site.keep(context.wrap_socket(raw, server_hostname="localhost", do_handshake_on_connect=False)))
    waiting = clients
    while waiting and not site.over():
        waiting = [client for client in waiting if not _shaken(site, client)]
    if site.times("let in") != len(clients):
        site.faults.append(f"{site.times('let in')} of {len(clients)} clients were let in")


def _shaken(site, client):
    """Whether it is in, or never will be."""
    try:
        client.do_handshake()
        site.count("let in")
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    except OSError:
        site.count("refused")
    return True


@attack("TLS: hello and gone", "bytes of a hello, then the next connection", scene="guarded")
def hellos(site):
    def work(_):
        while not site.over():
            connection = site.tcp()
            site.push(connection, CLIENT_HELLO, drain=False)
            connection.close()
    in_parallel(work, 4)


@attack("TLS: noise", "bytes that are no TLS", scene="guarded")
def noise(site):
    def work(_):
        while not site.over():
            connection = site.tcp()
            while not site.over() and site.push(connection, os.urandom(65536)):
                pass
            connection.close()
    in_parallel(work, 4)


def ask_by_openssl(site, version, command, size, pause):
    """A command of s_client, which sends so many bytes, again and again."""
    def work(_):
        while not site.over():
            client = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{site.daemon.grpc_port}", version,
                                       "-alpn", "h2"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            try:
                while not site.over() and client.poll() is None:
                    client.stdin.write(command)
                    client.stdin.flush()
                    site.sent += size
                    site.count("asked")
                    time.sleep(pause)
            except OSError:
                site.count("closed")
            client.kill()
            client.wait()
    in_parallel(work, 4)


@attack("TLS: renegotiation", "openssl s_client asks for a new handshake again and again (TLS 1.2)", scene="guarded",
        short=True)
def renegotiation(site):
    ask_by_openssl(site, "-tls1_2", b"R\n", 300, 0.01)


@attack("TLS: key updates", "openssl s_client wants new keys again and again (TLS 1.3)", scene="guarded")
def key_updates(site):
    ask_by_openssl(site, "-tls1_3", b"K\n", 27, 0.001)


@attack("tokens guessed", "calls with another token each, as fast as they are taken", scene="guarded", short=True)
def guesses(site):
    numbers = itertools.count()

    def work(_):
        while not site.over():
            wire = site.wire()
            while not site.over() and all(
                    site.streams(wire, PREDICT, DIN, 1, more=[("authorization", f"Bearer guess-{next(numbers)}")])
                    for _ in range(100)):
                site.count("guesses", 100)
            wire.close()
    in_parallel(work, 3)


@attack("tokens of 15 KB", "a long one each time", scene="guarded")
def long_tokens(site):
    while not site.over():
        wire = site.wire()
        while not site.over() and site.streams(wire, METADATA, DIN, 50, more=[("authorization", "Bearer " + "t" * 15000)]):
            pass
        wire.close()


@attack("many tokens in one call", "1000 headers named authorization", scene="guarded")
def many_tokens(site):
    while not site.over():
        wire = site.wire()
        while not site.over() and site.streams(wire, METADATA, DIN, 50, more=[("authorization", "B")] * 700):
            pass
        wire.close()


@attack("messages of 16 MB without a token", "eight connections", scene="guarded")
def large_messages(site):
    _fields(PREDICT, bytes(LIMIT), 8, site)


@attack("8 million fields without a token", "KServe inputs, six connections", scene="guarded")
def fields(site):
    _fields(*FIELDS["empty KServe inputs"], 6, site)


for _name, _path in (("Check", CHECK), ("Predict", PREDICT), ("reflection", REFLECTION)):
    REGISTERED.append(Attack(f"gzip bomb without a token, {_name}", "512 MB of zeros", functools.partial(
        lambda path, site: send_bomb(site, path, 512 << 20, "gzip", 1), _path), scene="guarded", short=_name == "Predict"))


@attack("window of 0, 40000 x Check without a token", "health checks are open", scene="guarded", seconds=6, short=True)
def window(site):
    site.streams(site.wire(NO_WINDOW), CHECK, EMPTY, 40000)
    site.hold()


@attack("window of 0, refusals without a token", "20000 calls that are UNAUTHENTICATED", scene="guarded", seconds=6)
def refusals(site):
    site.streams(site.wire(NO_WINDOW), METADATA, DIN, 20000)
    site.hold()


@attack("open streams without a token", "Predict, reflection and Watch, never ended", scene="guarded")
def open_streams(site):
    for path in (PREDICT, INFER, REFLECTION, WATCH):
        for _ in range(2):
            site.streams(site.wire(), path, b"", 900, end=False)
    site.hold()


@attack("headers without end over TLS", "CONTINUATION frames", scene="guarded")
def endless_headers(site):
    while not site.over():
        wire = site.wire()
        site.push(wire, frame(http2.HEADERS, 0, 1, http2.call_headers(PREDICT)))
        piece = frame(http2.CONTINUATION, 0, 1, http2.header_block([("x-more", "y" * 1000)] * 16))
        while not site.over() and site.push(wire, piece * 16):
            pass
        wire.close()


@attack("rapid reset without a token", "Predict", scene="guarded")
def rapid_reset(site):
    block = http2.call_headers(PREDICT)
    while not site.over():
        wire, stream = site.wire(), 1
        while not site.over() and site.push(wire, b"".join(
                frame(http2.HEADERS, 5, s, block) + frame(http2.RST_STREAM, 0, s, b"\0\0\0\x08")
                for s in range(stream, stream + 200, 2))):
            stream += 200
        wire.close()
