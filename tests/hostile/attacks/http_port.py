"""The HTTP port: pages for operators and probes.
SPDX-License-Identifier: Apache-2.0
"""
import itertools
import os
import shutil
import socket
import struct
import time

from harness import modelfiles
from attacks.common import attack, in_parallel
from attacks.models import tall

GET = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"


@attack("HTTP: slow loris", "1000 connections, one byte of a request at a time")
def loris(site):
    connections = []
    for _ in range(1000):
        try:
            connections.append(site.tcp(site.daemon.http_port))
        except OSError:
            site.count("refused")
    i = 0
    while not site.over():
        for connection in connections:
            site.push(connection, b"GET /metrics HTTP/1.1\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaa"[i % 50:i % 50 + 1])
        i += 1
        time.sleep(0.1)


def _connect(site, data, linger):
    def work(_):
        while not site.over():
            try:
                connection = site.tcp(site.daemon.http_port)
                if data:
                    connection.send(data)
                    site.sent += len(data)
                if linger:  # A reset instead of a farewell.
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                site.count("connected")
                connection.close()
            except OSError:
                site.count("refused")
    in_parallel(work, 4)


@attack("HTTP: connection flood", "connects and closes as fast as it can; probes are lost, perhaps", short=True)
def connections(site):
    _connect(site, b"", False)


@attack("HTTP: connection flood, resets", "the same, and each ends with a reset")
def resets(site):
    _connect(site, b"", True)


@attack("HTTP: half a request, then gone", "as many as it can")
def half_requests(site):
    _connect(site, b"GET /heal", False)


@attack("HTTP: flood of /metrics", "the dearest page, asked for without end, answers not read")
def pages(site):
    _connect(site, GET % b"/metrics", False)


@attack("HTTP: 400 watchers of a tall model", "its plan of 19 999 steps, the console and the metrics, again and again", seconds=40)
def watchers(site):
    folder = os.path.join(site.scene.repository, "tall", "1")
    modelfiles.write_version(folder, tall(19_999))
    site.scene.until_tried(site, "tall")
    site.begin()

    def work(first):
        for i in itertools.count(first):
            if site.over():
                return
            connection = site.tcp(site.daemon.http_port)
            site.push(connection, GET % (b"/plans.json", b"/statusz", b"/metrics", b"/statusz.html")[i % 4])
            connection.settimeout(2)
            site.count("answered" if connection.recv(100) else "closed")
            connection.close()
    in_parallel(work, 400)
    shutil.rmtree(os.path.dirname(folder))
    time.sleep(1)


@attack("HTTP: connections kept open", "5000 that say nothing")
def kept(site):
    for _ in range(5000):
        if site.over():
            break
        try:
            site.tcp(site.daemon.http_port)
        except OSError:
            site.count("refused")
    site.hold()


def _endless(site, first, piece):
    while not site.over():
        connection = site.tcp(site.daemon.http_port)
        site.push(connection, first)
        while not site.over() and site.push(connection, piece):
            pass
        connection.close()


@attack("HTTP: request line without end", "a path that goes on")
def long_line(site):
    _endless(site, b"GET /", b"x" * 65536)


@attack("HTTP: headers without end", "one after the other")
def headers(site):
    _endless(site, b"GET /metrics HTTP/1.1\r\n", b"X-More: y\r\n" * 5000)


@attack("HTTP: pipelining, nothing read", "100 000 requests on one connection", short=True)
def pipelining(site):
    in_parallel(lambda _: site.push(site.tcp(site.daemon.http_port, 4096), (GET % b"/metrics") * 100_000, drain=False), 4)


@attack("HTTP: a body of gigabytes", "POST with as much as is taken")
def body(site):
    _endless(site, b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", bytes(65536))


@attack("HTTP: noise", "bytes that are no HTTP, and HTTP/2")
def noise(site):
    data = bytes(range(256)) * 100 + b"\r\n\r\n" + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    _endless(site, data, data)


@attack("HTTP: a body in chunks", "chunks without end, of sizes that lie")
def chunks(site):
    _endless(site, b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
             b"ffffffffffffffff\r\nx\r\n" + b"1\r\nx\r\n" * 1000)


@attack("HTTP: one header of gigabytes", "a value that goes on")
def long_header(site):
    _endless(site, b"GET /metrics HTTP/1.1\r\nX-More: ", b"y" * 65536)


@attack("HTTP: answers read by the byte", "500 connections that want /metrics and take their time")
def slow_readers(site):
    connections = []
    for _ in range(500):
        try:
            connections.append(site.tcp(site.daemon.http_port, 2048))
        except OSError:
            site.count("refused")
    for connection in connections:
        site.push(connection, GET % b"/metrics", drain=False)
    while not site.over():
        for connection in connections:
            try:
                connection.recv(1)
            except OSError:
                pass
        time.sleep(0.05)
