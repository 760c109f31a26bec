"""KServe v2 over HTTP: curl, Python's http.client and Node's fetch against the HTTP port.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import http.client
import json
import os
import select
import selectors
import shutil
import socket
import subprocess
import threading
import unittest

import numpy as np

from harness import env
from harness.callers import together
from harness.clients import infer_body, infer_outputs, infer_request
from harness.daemon import FAST, wait_for
from harness.fixtures import BusyTest, DaemonTest, add_shop, add_stamp, shop
from harness.metrics import scrape
from harness.shop import USER
from harness.small import heavy_inputs, stamp_inputs

class Rest:
    """One connection, kept open."""

    def __init__(self, daemon):
        self.connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port,
                                                     timeout=60 * env.SLOWNESS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def ask(self, method, path, body=None, headers=None):
        """(code, object of the reply, its headers)."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        self.connection.request(method, path, body, headers or {})
        reply = self.connection.getresponse()
        raw = reply.read()
        size = int(reply.getheader("Inference-Header-Content-Length") or len(raw))
        self.behind = raw[size:]
        return reply.status, json.loads(raw[:size]), dict(reply.getheaders())

    def infer(self, model, body, **headers):
        return self.ask("POST", f"/v2/models/{model}/infer", body, headers)


class RestTest(DaemonTest):
    # A call without a deadline is not refused for waiting, however busy the machine is.
    CONFIG = FAST + ("http_inference: true\nlimits { max_message_bytes: 4194304 }\n"
                     "scheduling { max_queued_ms: 60000 codel_target_ms: 0 }\n")

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        for version in (1, 2):
            add_stamp(repository, version, version=version)

    def test_server_and_models(self):
        with Rest(self.daemon) as rest:
            code, server, _ = rest.ask("GET", "/v2")
            self.assertEqual((code, server["name"]), (200, "ulfd"))
            self.assertEqual(rest.ask("GET", "/v2/health/live")[:2], (200, {"live": True}))
            self.assertEqual(rest.ask("GET", "/v2/health/ready")[:2], (200, {"ready": True}))
            code, shop_, _ = rest.ask("GET", "/v2/models/shop")
            self.assertEqual((code, shop_["name"], shop_["versions"]), (200, "shop", ["1"]))
            inputs = {i["name"]: (i["datatype"], i["shape"]) for i in shop_["inputs"]}
            self.assertEqual(inputs["ad.ids"], ("INT64", [-1]))
            self.assertEqual(rest.ask("GET", "/v2/models/shop/versions/1")[1], shop_)
            self.assertEqual(rest.ask("GET", "/v2/models/shop/ready")[0], 200)
            self.assertEqual(rest.ask("GET", "/v2/models/shop/versions/9/ready")[0], 503)
            self.assertEqual(rest.ask("GET", "/v2/models/shop/versions/")[0], 404)
            for path in ("/v2/models/shopp", "/v2/nothing", "/v2/models/shop/infer/x"):
                code, reply, _ = rest.ask("GET", path)
                self.assertEqual(code, 404, path)
                self.assertTrue(reply["error"])
            self.assertEqual(rest.ask("GET", "/v2/models/%73hop%2Fx")[0], 404)
            self.assertEqual(rest.ask("GET", "/v2/models/%73ho%70")[1], shop_)

    def test_methods(self):
        with Rest(self.daemon) as rest:
            for method, path, allowed in (("GET", "/v2/models/shop/infer", "POST"),
                                          ("OPTIONS", "/v2/models/shop/infer", "POST"),
                                          ("PUT", "/v2/models/shop/infer", "POST"),
                                          ("POST", "/v2/models/shop", "GET, HEAD"),
                                          ("DELETE", "/v2", "GET, HEAD")):
                body = b"{}" if method in ("PUT", "POST") else None
                code, reply, headers = rest.ask(method, path, body)
                self.assertEqual((code, headers["Allow"]), (405, allowed), path)
                self.assertIn(f"want {allowed}", reply["error"])
            rest.connection.request("HEAD", "/v2/models/shop")
            reply = rest.connection.getresponse()
            self.assertEqual((reply.status, reply.read()), (200, b""))
            self.assertGreater(int(reply.getheader("Content-Length")), 0)

    def test_forms_of_requests(self):
        head = b"GET http://there/v2/models/shop/ready HTTP/1.1\r\nHost: there\r\n"
        self.assertIn(" 200 ", self.raw(head + b"Connection: TE, Close\r\n\r\n"))
        with Rest(self.daemon) as rest:
            body = infer_body(shop().inputs(3))
            self.assertEqual(rest.infer("shop", body, **{"Content-Encoding": "identity"})[0], 200)
            self.assertEqual(rest.infer("shop", body, **{"Content-Encoding": "gzip"})[0], 501)

    def test_scores(self):
        with Rest(self.daemon) as rest:
            for ads in (1, 7, 200):
                arrays = shop().inputs(ads, seed=ads)
                code, reply, _ = rest.infer("shop", infer_body(arrays, id=f"r{ads}"))
                self.assertEqual(code, 200, reply)
                self.assertEqual((reply["model_name"], reply["model_version"], reply["id"]),
                                 ("shop", "1", f"r{ads}"))
                for output in reply["outputs"]:
                    found = np.array(output["data"], np.float32).reshape(output["shape"])
                    self.assert_close(found, shop().scores(arrays)[output["name"]], 1e-5, ads)
                # Bit for bit what gRPC answers.
                grpc = infer_outputs(self.client.infer(infer_request("shop", arrays, USER)))
                for output in reply["outputs"]:
                    self.assertEqual(np.array(output["data"], np.float32).tobytes(),
                                     grpc[output["name"]].tobytes())

    def test_types_of_numbers(self):
        arrays = shop().inputs(7, seed=7, plain=True)  # Every weight is 1.
        arrays = {name: abs(array) if name.endswith(".ids") else array
                  for name, array in arrays.items()}
        expected = shop().scores(arrays)
        for ids, counts, floats, weights in (
                ("<i4", "<u1", "<f8", "?"), ("<u2", "<i8", "<f4", "<i1"),
                ("<u4", "<i2", "<f8", "<u8"), ("<u8", "<i1", "<f4", "<f8")):
            kinds = {".ids": ids, ".segments": counts, ".values": weights,
                     "mask": "?" if weights == "?" else counts}
            cast = {name: array.astype(kinds.get(name[max(name.find("."), 0):], floats))
                    for name, array in arrays.items()}
            found = [infer_outputs(self.client.infer(infer_request("shop", cast, USER, raw=raw)))
                     for raw in (True, False)]
            with Rest(self.daemon) as rest:
                code, reply, _ = rest.infer("shop", infer_body(cast))
            self.assertEqual(code, 200, reply)
            found.append({output["name"]: np.reshape(output["data"], output["shape"])
                          for output in reply["outputs"]})
            for outputs in found:
                for name, values in expected.items():
                    self.assert_close(outputs[name], values, 1e-5, (ids, counts, floats, weights))

    def test_a_version(self):
        with Rest(self.daemon) as rest:
            for version in (1, 2):
                # Only the highest one is loaded.
                code, reply, _ = rest.infer(f"stamp/versions/{version}",
                                            infer_body(stamp_inputs([0])))
                self.assertEqual(code, 200 if version == 2 else 404, reply)
            self.assertEqual(rest.infer("stamp/versions/x", infer_body(stamp_inputs([0])))[0], 400)

    def test_binary_tensors(self):
        arrays = shop().inputs(20)
        body = infer_body(arrays)
        for tensor in body["inputs"]:
            del tensor["data"]
            tensor["parameters"] = {"binary_data_size": arrays[tensor["name"]].nbytes}
        body["outputs"] = [{"name": "output", "parameters": {"binary_data": True}},
                           {"name": "buy"}]
        head = json.dumps(body).encode()
        with Rest(self.daemon) as rest:
            code, reply, _ = rest.infer(
                "shop", head + b"".join(a.tobytes() for a in arrays.values()),
                **{"Inference-Header-Content-Length": str(len(head))})
            self.assertEqual(code, 200, reply)
            output, buy = reply["outputs"]
            self.assertEqual(output["parameters"], {"binary_data_size": 20 * 2 * 4})
            scores = shop().scores(arrays)
            self.assert_close(np.frombuffer(rest.behind, "<f4").reshape(20, 2), scores["output"],
                              1e-5)
            self.assert_close(np.array(buy["data"], np.float32).reshape(20, 1), scores["buy"], 1e-5)

    def test_bad_requests(self):
        good = infer_body(shop().inputs(3))
        cases = [
            (b"{", 400, "JSON: "),
            (b'{"inputs":[{"name":"ctx","shape":[1],"datatype":"FP32","data":[NaN]}]}', 400,
             "invalid literal"),
            (b'{"inputs":' + b"[" * 100000, 400, "JSON: "),
            (b'{"inputs":[{"data":' + b"[" * 1000000, 400, "more than 8 deep"),
            ({**good, "parameters": {"priority": 1}}, 400, 'parameter "priority": unknown'),
            ({"inputs": good["inputs"][1:]}, 400, "given without"),
            ({"inputs": [{**good["inputs"][0], "datatype": "FP64"}]}, 400, "FP64"),
            (b'{"inputs":[' + b",".join([b'{"data":[]}'] * 300000) + b"]}", 429,
             "limits.max_request_fields"),
        ]
        with Rest(self.daemon) as rest:
            for body, want, text in cases:
                code, reply, _ = rest.infer("shop", body)
                self.assertEqual(code, want, reply)
                self.assertIn(text, reply["error"])
            # Which of two names counts, every reader of JSON decides for itself; two inputs do not.
            code, reply, _ = rest.infer("shop", {"inputs": good["inputs"] + good["inputs"][:1]})
            self.assertEqual(code, 400, reply)
            self.assertIn("given twice", reply["error"])
            self.assertEqual(rest.infer("shop", good, **{"ulfd-timeout-ms": "soon"})[0], 400)
            self.assertEqual(rest.infer("shop", good, **{"Content-Encoding": "gzip"})[0], 501)
            self.assertEqual(rest.infer("shop", good)[0], 200)

    def raw(self, text):
        with socket.create_connection(("127.0.0.1", self.daemon.http_port), 30) as connection:
            connection.sendall(text)
            connection.settimeout(30 * env.SLOWNESS)
            reply = b""
            while piece := connection.recv(65536):
                reply += piece
        return reply.decode()

    def test_bodies_that_are_no_good(self):
        post = b"POST /v2/models/shop/infer HTTP/1.1\r\nHost: x\r\n"
        self.assertIn(" 411 ", self.raw(post + b"\r\n"))
        self.assertIn(" 413 ", self.raw(post + b"Content-Length: 104857600\r\n\r\n"))
        self.assertIn("limits.max_message_bytes",
                      self.raw(post + b"Content-Length: 104857600\r\n\r\n"))
        for lengths in (b"-1", b"1x", b"1, 2", b"99999999999999999999"):
            self.assertIn(" 400 ", self.raw(post + b"Content-Length: " + lengths + b"\r\n\r\n"))
        self.assertIn(" 400 ", self.raw(post + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n"))
        self.assertIn(" 501 ", self.raw(post + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
        self.assertIn(" 405 ", self.raw(b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"))

    @unittest.skipIf(shutil.which("curl") is None, "no curl")
    def test_a_hundred_megabytes_by_curl(self):
        path = os.path.join(self.daemon.dir, "large.json")
        with open(path, "wb") as file:
            file.truncate(100 << 20)
        before = self.daemon.resident_bytes()
        done = subprocess.run(
            ["curl", "-sS", "-w", "%{http_code}", "--data-binary", f"@{path}",
             f"http://127.0.0.1:{self.daemon.http_port}/v2/models/shop/infer"],
            capture_output=True, text=True, check=False, timeout=60 * env.SLOWNESS)
        self.assertIn("413", done.stdout + done.stderr)
        self.assertLess(self.daemon.resident_bytes() - before, 32 << 20)

    def test_silent_bodies_keep_nobody_waiting(self):
        slow = []
        for _ in range(50):
            connection = socket.create_connection(("127.0.0.1", self.daemon.http_port), 30)
            connection.sendall(b"POST /v2/models/shop/infer HTTP/1.1\r\nContent-Length: 4000000\r\n"
                               b"\r\n" + b" " * 1000)
            slow.append(connection)
        with Rest(self.daemon) as rest:
            for _ in range(20):
                self.assertEqual(rest.infer("shop", infer_body(shop().inputs(3)))[0], 200)
        self.assertEqual(self.daemon.http("/readyz")[0], 200)
        for connection in slow:
            connection.close()

    def test_large_bodies_are_read_beside_usual_ones(self):
        zeros = ("[" + "0," * 1_900_000 + "0]").encode()
        large = json.dumps(infer_body(shop().inputs(3))).encode()[:-1] + b',"x":' + zeros + b"}"
        answered, stopped = [], threading.Event()

        def send(_):
            with Rest(self.daemon) as rest:
                while not stopped.is_set():
                    answered.append(rest.infer("shop", large)[0])

        senders = [threading.Thread(target=send, args=(i,)) for i in range(4)]
        for sender in senders:
            sender.start()
        usual = 0
        with Rest(self.daemon) as rest:
            while len(answered) < 20:
                self.assertEqual(rest.infer("shop", infer_body(shop().inputs(3)))[0], 200)
                usual += 1
        stopped.set()
        for sender in senders:
            sender.join()
        # Where they take turns there is one for two large ones.
        self.assertGreater(usual, 20, answered)

    def test_clients_take_turns(self):
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [9000],
                                       "data": [0.125] * 9000}]}).replace(" ", "").encode()
        head = "POST /v2/models/shop/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        request = head.encode() + body
        answers, stopped = [0], threading.Event()

        def send():
            with selectors.DefaultSelector() as selector, contextlib.ExitStack() as open_sockets:
                for _ in range(100):
                    stranger = open_sockets.enter_context(socket.create_connection(
                        ("127.0.0.1", self.daemon.http_port), 30, source_address=("127.0.0.2", 0)))
                    stranger.sendall(request)
                    selector.register(stranger, selectors.EVENT_READ)
                while not stopped.is_set():
                    for key, _ in selector.select(1):
                        key.fileobj.recv(65536)
                        answers[0] += 1
                        key.fileobj.sendall(request)

        sender = threading.Thread(target=send)
        sender.start()
        wait_for(lambda: answers[0] > 100, "answers for the other address")
        before, usual = answers[0], 0
        with Rest(self.daemon) as rest:
            while answers[0] < before + 1000:
                self.assertEqual(rest.infer("shop", infer_body(shop().inputs(3)))[0], 200)
                usual += 1
        stopped.set()
        sender.join()
        # Where all wait in one queue there are ten.
        self.assertGreater(usual, 30)

    def test_many_at_once(self):
        arrays = shop().inputs(50)
        wanted = shop().scores(arrays)["output"]
        def run(_):
            with Rest(self.daemon) as rest:
                for _ in range(30):
                    code, reply, _ = rest.infer("shop", infer_body(arrays))
                    scores = {o["name"]: o["data"] for o in reply.get("outputs", ())}
                    self.assertEqual(code, 200, reply)
                    self.assert_close(np.array(scores["output"]).reshape(50, 2), wanted, 1e-5)

        together(run, 16)

    @unittest.skipIf(shutil.which("node") is None, "no node")
    def test_node_fetch(self):
        arrays = shop().inputs(5)
        script = """
          const [port, body] = process.argv.slice(1);
          (async () => {
            for (let i = 0; i < 3; ++i) {
              const reply = await fetch(`http://127.0.0.1:${port}/v2/models/shop/infer`,
                                        {method: 'POST', body});
              console.log(JSON.stringify(await reply.json()));
            }
          })();"""
        done = subprocess.run(["node", "-e", script, str(self.daemon.http_port),
                               json.dumps(infer_body(arrays))],
                              capture_output=True, text=True, check=False,
                              timeout=60 * env.SLOWNESS)
        replies = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(replies), 3, done.stderr)
        for reply in replies:
            scores = {o["name"]: np.array(o["data"]).reshape(o["shape"]) for o in reply["outputs"]}
            self.assert_close(scores["output"], shop().scores(arrays)["output"], 1e-5)


class RestLimitsTest(BusyTest):
    CONFIG = FAST + """
http_inference: true
workers: 1
limits { max_queued_requests: 1 }
scheduling { tile_us: 1000000 max_queued_ms: 60000 codel_target_ms: 0 }
"""

    def test_the_queue_is_the_same(self):
        def refused():
            self.idle()
            calls = self.occupy(2)
            answer = rest.infer("stamp", infer_body(stamp_inputs([1])))
            for call in calls:
                call.cancel()
            # Else the long calls ended before this one came.
            return answer if answer[0] != 200 else None

        with Rest(self.daemon) as rest:
            code, reply, headers = wait_for(refused, "a call behind others", 60)
            self.assertEqual(code, 429, reply)
            self.assertIn("queue_full", reply["error"])
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            self.idle()
            self.assertEqual(rest.infer("stamp", infer_body(stamp_inputs([1])))[0], 200)
            code, reply, _ = rest.infer("heavy", infer_body(heavy_inputs()),
                                        **{"ulfd-timeout-ms": "1"})
            self.assertIn(code, (429, 504), reply)

    def test_who_leaves_is_not_computed_for(self):
        before = scrape(self.daemon).sum("ulfd_cancelled_total")
        body = json.dumps(infer_body(heavy_inputs())).encode()

        def cancelled():
            with socket.create_connection(("127.0.0.1", self.daemon.http_port), 30) as connection:
                connection.sendall(b"POST /v2/models/heavy/infer HTTP/1.1\r\n"
                                   b"Content-Length: %d\r\n\r\n" % len(body) + body)
                # Until it is computed; who is answered before that tries again.
                while not select.select([connection], [], [], 0)[0]:
                    if scrape(self.daemon).sum("ulfd_inflight_requests") >= 1:
                        break
            return scrape(self.daemon).sum("ulfd_cancelled_total") > before

        wait_for(cancelled, "a call that ends because its caller left", 60)


class RestTokensTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    @classmethod
    def setUpClass(cls):
        tokens = os.path.join(env.scratch("rest_tokens"), "tokens")
        with open(tokens, "w", encoding="utf-8") as file:
            file.write("shop sixteen-letters-or-more\n")
        cls.CONFIG = FAST + f'http_inference: true\nauthentication {{ token_file: "{tokens}" }}\n'
        super().setUpClass()

    def test_tokens(self):
        body = infer_body(stamp_inputs([1]))
        with Rest(self.daemon) as rest:
            code, _, headers = rest.infer("stamp", body)
            self.assertEqual((code, headers["WWW-Authenticate"]), (401, "Bearer"))
            self.assertEqual(rest.ask("GET", "/v2/models/stamp")[0], 401)
            self.assertEqual(rest.ask("GET", "/v2/health/ready")[0], 200)
            self.assertEqual(rest.infer("stamp", body,
                                        Authorization="Bearer sixteen-letters-or-mores")[0], 401)
            self.assertEqual(rest.infer("stamp", body,
                                        Authorization="Bearer sixteen-letters-or-more")[0], 200)


class NoRestTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    def test_off_by_default(self):
        self.assertEqual(self.daemon.http("/v2")[0], 404)
        with Rest(self.daemon) as rest:
            rest.connection.request("POST", "/v2/models/stamp/infer", b"{}")
            self.assertEqual(rest.connection.getresponse().status, 405)
