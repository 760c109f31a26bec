"""The client packages of deploy/clients: built as their users build them, then called against real
daemons, and against a server whose every answer the test decides.
SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time
import unittest

import grpc
import numpy as np

import health_v1_pb2 as health_pb
from harness import env
from harness.clients import native_pb
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import add_stamp

PACKAGES = os.path.join(env.ROOT, "deploy", "clients")
IDS = [1, 2]
USERS = [f"user-{number}" for number in range(20)]


class Scripted:
    """A server with the scores of a stamp, unless `answer(context)` ends the call otherwise; its
    health says `serving`."""

    def __init__(self, answer, stamp=1):
        self.answer, self.stamp, self.serving = answer, stamp, True
        self.arrivals = []  # (time, metadata) of each Predict.
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers((
            grpc.method_handlers_generic_handler("ulfd.v1.PredictionService", {
                "Predict": grpc.unary_unary_rpc_method_handler(
                    self.predict, native_pb.PredictRequest.FromString,
                    native_pb.PredictResponse.SerializeToString)}),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {
                "Watch": grpc.unary_stream_rpc_method_handler(
                    self.watch, health_pb.HealthCheckRequest.FromString,
                    health_pb.HealthCheckResponse.SerializeToString)})))
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def predict(self, request, context):
        self.arrivals.append((time.monotonic(), dict(context.invocation_metadata())))
        self.answer(context)
        reply = native_pb.PredictResponse(model=request.model)
        ids = request.ad_features[0].sparse.ids
        reply.outputs.add(name="score", shape=[len(ids), 1], values=[self.stamp * (i + 1)
                                                                     for i in ids])
        return reply

    def watch(self, _, context):
        told = None
        while context.is_active():
            if told != self.serving:
                told = self.serving
                status = health_pb.HealthCheckResponse.SERVING if told else \
                    health_pb.HealthCheckResponse.NOT_SERVING
                yield health_pb.HealthCheckResponse(status=status)
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(None).wait()


def refusing(code, pushback=None, times=1):
    """Refuses so many calls with that code, then answers."""
    left = [times]

    def answer(context):
        if left[0] == 0:
            return
        left[0] -= 1
        if pushback is not None:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", str(pushback)),))
        context.abort(code, "scripted")
    return answer


class ClientPackageTest:
    """What every client has to do.  `connect` gives a function that makes a call, and one that
    ends the client; a call returns (name of the status code, scores of the ads)."""

    @classmethod
    def setUpClass(cls):
        cls.work = env.scratch(cls.__name__)
        cls.build()
        cls.models = [os.path.join(cls.work, f"models{stamp}") for stamp in (1, 2)]
        for stamp, models in enumerate(cls.models, start=1):
            add_stamp(models, stamp)

    def daemon(self, stamp, config=FAST):
        return Daemon(self.models[stamp - 1], config=config, name=f"{type(self).__name__}{stamp}")

    def run_example(self, *args):
        done = subprocess.run(self.example(*args), capture_output=True, text=True, check=False,
                              timeout=60 * env.SLOWNESS, env={**os.environ, **self.environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def open(self, *targets, **options):
        call, close = self.connect(targets, **{"timeout": 30 * env.SLOWNESS, **options})
        self.addCleanup(close)
        return call

    def stamp(self, answer):
        """Of the replica that computed it."""
        code, scores = answer
        self.assertEqual(code, "OK")
        (stamp,) = set(np.array(scores).ravel() / (np.array(IDS) + 1))
        return int(stamp)

    def test_example(self):
        with self.daemon(2) as daemon:
            self.assertEqual([line.split() for line in
                              self.run_example(daemon.target, "stamp", "ad", "3")],
                             [["stamp", "v1", "score:", *found] for found in
                              3 * [[self.number(4), self.number(6)]]])

    def test_one_user_has_one_replica(self):
        with self.daemon(1) as one, self.daemon(2) as two:
            call = self.open(one.target, two.target)
            homes = {user: self.stamp(call(user=user)) for user in USERS}
            self.assertEqual(set(homes.values()), {1, 2})
            for _ in range(3):
                self.assertEqual({user: self.stamp(call(user=user)) for user in USERS}, homes)

    def homes(self, call):
        return {self.stamp(call(user=user)) for user in USERS}

    def test_no_call_fails_while_a_replica_drains(self):
        slow_end = FAST.replace("drain_delay_ms: 50", "drain_delay_ms: 3000")
        one = self.daemon(1, slow_end)
        self.addCleanup(one.kill)
        with self.daemon(2) as two:
            call = self.open(one.target, two.target)
            self.assertEqual(self.homes(call), {1, 2})
            one.terminate()
            wait_for(lambda: self.homes(call) == {2}, "every user has moved")
            self.assertEqual(one.wait(), 0)
            self.assertEqual(self.homes(call), {2})

    def test_no_call_fails_when_a_replica_is_killed(self):
        one = self.daemon(1)
        self.addCleanup(one.kill)
        with self.daemon(2) as two:
            call = self.open(one.target, two.target)
            self.assertEqual(self.homes(call), {1, 2})
            one.kill()
            for _ in range(3):
                self.assertEqual(self.homes(call), {2})

    def test_follows_health_both_ways(self):
        with Scripted(lambda context: None) as one, Scripted(lambda context: None, 2) as two:
            call = self.open(one.target, two.target)
            self.assertEqual(self.homes(call), {1, 2})
            one.serving = False
            wait_for(lambda: self.homes(call) == {2}, "every user has moved")
            one.serving = True
            wait_for(lambda: self.homes(call) == {1, 2}, "its users are back")

    def test_retries_when_the_server_says_so(self):
        with Scripted(refusing(grpc.StatusCode.RESOURCE_EXHAUSTED, 300, times=2)) as server:
            call = self.open(server.target, token="secret")
            self.assertEqual(call(user="u", priority="high")[0], "OK")
        times, metadata = zip(*server.arrivals)
        self.assertEqual(len(times), 3)
        for before, after in zip(times, times[1:]):
            self.assertGreaterEqual(after - before, 0.299)
        for found in metadata:
            self.assertRegex(found["x-user-hash"], "^[0-9a-f]{16}$")
            self.assertEqual((found["authorization"], found["ulfd-priority"]),
                             ("Bearer secret", "high"))
        self.assertEqual(len({found["x-user-hash"] for found in metadata}), 1)

    def test_retries_no_more_than_makes_sense(self):
        exhausted, unavailable = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        hour = 3600 * 1000
        for code, pushback, calls in (
                (unavailable, None, 3), (exhausted, 1, 3),
                (exhausted, None, 1), (unavailable, -1, 1), (exhausted, hour, 1),
                (grpc.StatusCode.INVALID_ARGUMENT, None, 1)):
            with self.subTest(code=code, pushback=pushback), \
                    Scripted(refusing(code, pushback, times=9)) as server:
                self.assertEqual(self.open(server.target)(user="u")[0], code.name)
                self.assertEqual(len(server.arrivals), calls)

    def test_the_deadline_is_that_of_all_attempts(self):
        with Scripted(lambda context: time.sleep(2)) as server:
            call = self.open(server.target, timeout=0.5)
            self.assertEqual(call(user="u")[0], "DEADLINE_EXCEEDED")
        self.assertLessEqual(len(server.arrivals), 1)

    def test_errors_of_a_real_daemon(self):
        with self.daemon(1) as daemon:
            call = self.open(daemon.target)
            self.assertEqual(call(model="stampp")[0], "NOT_FOUND")
            self.assertEqual(call(feature="add")[0], "INVALID_ARGUMENT")
            self.assertEqual(self.stamp(call()), 1)


class PythonClientTest(ClientPackageTest, unittest.TestCase):
    @classmethod
    def build(cls):
        try:
            import setuptools  # noqa: F401
        except ImportError:
            raise unittest.SkipTest("no python3-setuptools") from None
        base = os.path.join(cls.work, "build")
        subprocess.run([sys.executable, "setup.py", "-q", "build", f"--build-base={base}"],
                       cwd=os.path.join(PACKAGES, "python"), check=True)
        cls.environment = {"PYTHONPATH": os.path.join(base, "lib")}
        sys.path.insert(0, cls.environment["PYTHONPATH"])
        cls.addClassCleanup(sys.path.remove, cls.environment["PYTHONPATH"])

    def example(self, *args):
        return [sys.executable, os.path.join(PACKAGES, "python", "example.py"), *args]

    @staticmethod
    def number(value):
        return f"{value:.1f}"

    def connect(self, targets, **options):
        from ulfd_client import Client, Sparse
        client = Client(targets, **options)

        def call(model="stamp", feature="ad", user="", **fields):
            try:
                reply = client.predict(model, {}, {feature: Sparse(IDS)}, user_id=user, **fields)
            except grpc.RpcError as error:
                return error.code().name, None
            return "OK", reply.outputs["score"]
        return call, client.close

    def test_requests(self):
        from ulfd_client import Sparse, make_request
        request = make_request("m", {"f": np.array([[1, 2.5]])},
                               {"i": np.array([[1], [2]], np.int32), "l": np.array([2 ** 60]),
                                "s": Sparse([1, 2, 3], [1, 0.5, 1], [2, 1])}, label="canary")
        found = native_pb.PredictRequest.FromString(request.SerializeToString())
        self.assertEqual(found.model.label, "canary")
        (floats,) = found.user_features
        self.assertEqual((list(floats.dense.shape), list(floats.dense.floats)), ([1, 2], [1, 2.5]))
        ints, longs, sparse = found.ad_features
        self.assertEqual((list(ints.dense.shape), list(ints.dense.int32s)), ([2, 1], [1, 2]))
        self.assertEqual(list(longs.dense.int64s), [2 ** 60])
        self.assertEqual([list(sparse.sparse.ids), list(sparse.sparse.values),
                          list(sparse.sparse.counts)], [[1, 2, 3], [1, 0.5, 1], [2, 1]])
        with self.assertRaisesRegex(TypeError, "text"):
            make_request("m", {"text": ["a"]}, {})


class NodeClientTest(ClientPackageTest, unittest.TestCase):
    @classmethod
    def build(cls):
        if shutil.which("npm") is None or \
                not os.path.isdir(os.path.join(env.NODE_MODULES, "@grpc", "grpc-js")):
            raise unittest.SkipTest("no npm, or no @grpc/grpc-js in build/node")
        # npm pack writes the protos beside the code.
        source = os.path.join(cls.work, "deploy", "clients", "node")
        shutil.copytree(os.path.join(PACKAGES, "node"), source)
        shutil.copytree(os.path.join(env.ROOT, "proto"), os.path.join(cls.work, "proto"))
        subprocess.run(["npm", "pack", "--silent", "--offline"], cwd=source, check=True,
                       stdout=subprocess.DEVNULL)
        modules = os.path.join(cls.work, "node_modules")
        os.makedirs(modules)
        shutil.unpack_archive(os.path.join(source, "ulfd-client-0.1.0.tgz"), modules)
        os.rename(os.path.join(modules, "package"), os.path.join(modules, "ulfd-client"))
        cls.environment = {"NODE_PATH": f"{modules}:{env.NODE_MODULES}"}

    def test_types(self):
        if not os.path.isdir(os.path.join(env.NODE_MODULES, "typescript")):
            self.skipTest("no typescript in build/node: tests/run installs it")
        # The compiler looks for modules beside the file.
        shutil.copy(os.path.join(env.E2E, "clients", "types.ts"), self.work)
        modules = os.path.join(self.work, "node_modules")
        for name in ("@grpc", "@types"):
            os.symlink(os.path.join(env.NODE_MODULES, name), os.path.join(modules, name))
        done = subprocess.run(
            ["node", os.path.join(env.NODE_MODULES, "typescript", "bin", "tsc"), "--strict",
             "--noEmit", "--skipLibCheck", "--target", "es2020", "--module", "commonjs",
             os.path.join(self.work, "types.ts")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_what_is_no_number_is_refused(self):
        """By name, before anything is sent."""
        script = """
            const { Client } = require('ulfd-client');
            const client = new Client(['127.0.0.1:1'], { timeoutMs: 50, attempts: 1 });
            const big = new BigInt64Array([1n, -2n]);
            const given = [{ ids: [1.5] }, { ids: [undefined] }, { ids: [2 ** 60] }, { ids: ['1e3'] },
              { ids: [9223372036854775808n] }, { floats: ['1'] }, { idz: [1] },
              { ids: big, values: new Float32Array(2) }, { int64s: ['-9223372036854775808'] }];
            (async () => {
              for (const feature of given) {
                const error = await client.predict('m', { ads: { x: feature } }).catch((e) => e);
                console.log(error instanceof TypeError ? error.message : error.code);
              }
              client.close();
            })();
        """
        done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=False,
                              env={**os.environ, **self.environment}, timeout=120)
        whole = "want 64-bit integers (above 2^53 as text or bigint)"
        unavailable = [str(grpc.StatusCode.UNAVAILABLE.value[0]),
                       str(grpc.StatusCode.DEADLINE_EXCEEDED.value[0])]
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:7], [
            f"x.ids: 1.5, {whole}", f"x.ids: undefined, {whole}",
            f"x.ids: 1152921504606847000, {whole}", f"x.ids: 1e3, {whole}",
            f"x.ids: 9223372036854775808, {whole}", "x.floats: 1, want numbers", "x.idz: unknown"],
            done.stderr)
        self.assertEqual(len(lines), 9, done.stderr)
        self.assertLessEqual(set(lines[7:]), set(unavailable))

    def example(self, *args):
        return ["node", os.path.join(PACKAGES, "node", "example.js"), *args]

    @staticmethod
    def number(value):
        return f"{value:.0f}"

    def connect(self, targets, timeout, token=""):
        process = subprocess.Popen(
            ["node", os.path.join(env.E2E, "clients", "calls.js")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, **self.environment})

        def send(message):
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()

        def call(model="stamp", feature="ad", user="", priority=""):
            send({"model": model, "userId": user, "priority": priority,
                  "ads": {feature: {"ids": IDS}}})
            answer = json.loads(process.stdout.readline())
            if "code" in answer:
                codes = {code.value[0]: code.name for code in grpc.StatusCode}
                return codes[answer["code"]], None
            return "OK", answer["outputs"]["score"]["values"]

        def close():
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 0)

        send({"targets": targets, "timeoutMs": timeout * 1000, "token": token})
        return call, close
