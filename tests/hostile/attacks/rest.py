"""KServe by HTTP: bodies, JSON and connections as no proper client sends them.
SPDX-License-Identifier: Apache-2.0
"""
import json
import re
import time

from attacks.common import attack, in_parallel
from harness.clients import infer_body
from harness.fixtures import shop

PATH = b"/v2/models/shop/infer"
LIMIT = 1 << 24  # limits.max_message_bytes, its default.


def post(body=b"", length=None, more=b""):
    length = len(body) if length is None else length
    return b"POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %s\r\n\r\n%s" % (PATH, more, str(length).encode(), body)


def tensor(data, datatype=b"INT64", shape=b"1"):
    return b'{"name":"ad.ids","datatype":"%s","shape":[%s],"data":%s}' % (datatype, shape, data)


def request(*tensors):
    return b'{"inputs":[' + b",".join(tensors) + b"]}"


def answer(site, connection):
    """The code of the next reply, which has no bytes behind it; "" if there is none before the end."""
    reply = b""
    connection.settimeout(0.1)
    while not site.over():
        try:
            piece = connection.recv(1 << 16)
        except TimeoutError:
            continue
        except OSError:
            return ""
        reply += piece
        head, end, body = reply.partition(b"\r\n\r\n")
        if end and len(body) >= int(re.search(rb"Content-Length: (\d+)", head)[1]):
            return reply.split(b" ", 2)[1].decode()
        if not piece:
            return ""
    return ""


def ask(site, texts, want, connections=4):
    """Each in turn, again and again, one at a time on each connection; any other answer is a fault."""
    def work(first):
        i, connection = first, None
        while not site.over():
            if connection is None:
                connection = site.tcp(site.daemon.http_port)
            i += 1
            code = answer(site, connection) if site.push(connection, texts[i % len(texts)], drain=False) else ""
            if code:
                site.count(code)
                if not re.fullmatch(want, code):
                    site.faults.append(f"{code} for {texts[i % len(texts)][:300]!r}, want {want}")
            if code != "200":  # Most refusals end the connection.
                connection.close()
                connection = None
    in_parallel(work, connections)


@attack("REST: bodies of 100 MB", "sent whole, whatever is answered", scene="rest", short=True)
def large(site):
    piece = bytes(1 << 20)

    def work(_):
        while not site.over():
            connection = site.tcp(site.daemon.http_port)
            site.push(connection, post(length=100 << 20))
            for _ in range(100):
                if site.over() or not site.push(connection, piece):
                    break
            connection.close()
    in_parallel(work, 4)


@attack("REST: numbers up to the limit", "16 MB of them, four at a time", scene="rest", short=True)
def numbers(site):
    zeros = b"[" + b"0," * (LIMIT // 2 - 200) + b"0]"
    ask(site, [post(request(tensor(zeros))), post(request(tensor(zeros[:-2] + b".5]", b"FP32")))], "400|429|503")


@attack("REST: arrays nested without end", "up to 16 MB of brackets", scene="rest")
def nested(site):
    ask(site, [post(b"[" * (LIMIT - 1000)), post(b'{"inputs":' * 1_000_000), post(request(tensor(b"[" * 1_000_000))),
               post(b'{"parameters":{"a":' * 500_000)], "400|503")


@attack("REST: JSON that is none", "NaN, Infinity, 1e999, keys twice, texts that are no UTF-8, and their like", scene="rest", short=True)
def no_json(site):
    bad = [tensor(b"[%s]" % number, b"FP32") for number in
           (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1e39", b"0x1", b"01", b"1.", b".5", b"+1", b"null",
            b"true", b'"1"', b"{}")]
    bad += [tensor(b"[%s]" % number) for number in (b"1.5", b"9223372036854775808", b"-9223372036854775809", b"1e18")]
    bad += [tensor(b"[1]")[:-1] + more for more in (b',"data":[1]}', b',"name":1}', b',"unknown":{}}', b',"\xff":1}', b"",
                                                    b',"name":"\xc3\x28"}', b',"name":"\xed\xa0\x80"}', b',"name":"\\ud800"}')]
    texts = [request(one) for one in bad]
    texts += [request(tensor(b"[1]"), tensor(b"[1]")), request(tensor(b"[1]"))[:-1] + b',"inputs":[]', b"", b"null", b"[]", b"\0",
              b"\xef\xbb\xbf{", b'{"inputs":{}}', b"{} {}", request(tensor(b"[[1],[2,3]]", shape=b"2,1")),
              request(tensor(b"[1]", shape=b"-1")), request(tensor(b"[]", shape=b"9223372036854775807,2"))]
    ask(site, [post(text) for text in texts], "400", connections=8)


@attack("REST: bodies in chunks", "without end, of sizes that lie", scene="rest")
def chunks(site):
    while not site.over():
        connection = site.tcp(site.daemon.http_port)
        site.push(connection, b"POST %s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH)
        while not site.over() and site.push(connection, b"ffffffffffffffff\r\nx\r\n" + b"1\r\nx\r\n" * 1000):
            pass
        connection.close()


@attack("REST: lengths that lie", "more than comes, less, two of them, none that is one", scene="rest", short=True)
def lengths(site):
    good = request(tensor(b"[1]"))
    for _ in range(200):  # More than comes.
        site.push(site.tcp(site.daemon.http_port), post(good, LIMIT), drain=False)
    ask(site, [post(good, 5), post(good, b"-1"), post(good, b"1e3"), post(good, b"1, 2"), post(good, b"0x10"), post(good, b""),
               post(good, "9" * 40), post(good, len(good), b"Content-Length: 3\r\n"), post(good, 1 << 62),
               post(good, len(good), b"Inference-Header-Content-Length: 99999999\r\n")], "4..|503")


@attack("REST: slow bodies", "400 of 16 MB, some bytes at a time", scene="rest")
def slow(site):
    connections = []
    for _ in range(400):
        connections.append(site.tcp(site.daemon.http_port))
        site.push(connections[-1], post(length=LIMIT))
    while not site.over():
        for connection in connections:
            site.push(connection, b"[" * 1000)
        time.sleep(0.05)


@attack("REST: 10 000 connections kept", "each asks once and stays", scene="rest", seconds=8.0)
def kept(site):
    def work(_):
        for _ in range(2500):
            if site.over():
                return
            connection = site.tcp(site.daemon.http_port)
            site.push(connection, b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n", drain=False)
            site.count("connected")
    in_parallel(work, 4)
    site.hold()


@attack("REST: tiny tensors", "as many as 16 MB hold, and as many as are allowed", scene="rest", short=True)
def tiny(site):
    one = tensor(b"[]", shape=b"0")
    members = request(one)[:-1] + b',"parameters":{' + b",".join(b'"%d":1' % i for i in range(190_000)) + b"}}"
    ask(site, [post(request(*[one] * (LIMIT // (len(one) + 2)))), post(request(*[one] * 30_000)), post(members)], "400|429|503")


@attack("REST: replies that nobody reads", "good requests of 2000 ads, 20 on a connection", scene="rest")
def unread(site):
    text = post(json.dumps(infer_body(shop().inputs(2000))).encode())

    def work(_):
        while not site.over():
            connection = site.tcp(site.daemon.http_port, 4096)
            site.push(connection, text * 20, drain=False)
    in_parallel(work, 4)


@attack("REST: asked and gone", "good requests, each followed by a reset", scene="rest")
def gone(site):
    text = post(json.dumps(infer_body(shop().inputs(200))).encode())

    def work(_):
        while not site.over():
            connection = site.tcp(site.daemon.http_port)
            site.push(connection, text, drain=False)
            connection.close()
    in_parallel(work, 4)


@attack("REST: tokens guessed", "before bodies of 16 MB, which nobody reads", scene="guarded", short=True)
def tokens(site):
    body = request(tensor(b"[1]"))
    guesses = [b"Authorization: %s\r\n" % guess for guess in
               (b"Bearer guessed-guessed-guessed", b"Bearer ", b"Basic dmljdGltOng=", b"x" * 7000)] + [b""]
    for guess in guesses:
        for _ in range(20):
            site.push(site.tcp(site.daemon.http_port), post(length=LIMIT, more=guess) + bytes(100_000))
    ask(site, [post(body, more=guess) for guess in guesses], "401")
