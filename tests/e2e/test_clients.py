"""The client packages of deploy/clients: built as their users build them, then called against real
daemons, and against a server whose every answer the test decides.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import grpc
import numpy as np

from google.protobuf import json_format

import health_v1_pb2 as health_pb
from harness import env
from harness.clients import native_pb, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import add_shop, add_stamp, shop
from harness.metrics import scrape
from harness.shop import USER

PACKAGES = os.path.join(env.ROOT, "deploy", "clients")
IDS = [1, 2]
USERS = [f"user-{number}" for number in range(20)]
# Of a call: the code's name, scores of the ads, positions of the best, microseconds, what was wrong.
Answer = collections.namedtuple("Answer", "code scores indices timings details",
                                defaults=(None, None, None, ""))


def home_of(user, targets):
    """By the formula of docs/api.md."""
    key = hashlib.sha256(user.encode()).hexdigest()[:16]
    return min(targets, key=lambda target: hashlib.sha256(f"{key} {target}".encode()).digest())


def plain(features):
    """Features of a message as dicts of lists."""
    result = {}
    for feature in features:
        kind = getattr(feature, feature.WhichOneof("kind"))
        result[feature.name] = {field.name: list(value) for field, value in kind.ListFields()}
    return result


class Scripted:
    """A server with the scores of a stamp, unless `answer(context)` ends the call otherwise; its
    health says `serving`.  It keeps users by their key as a daemon does."""

    def __init__(self, answer, stamp=1):
        self.answer, self.stamp, self.serving = answer, stamp, True
        self.arrivals = []  # (time, metadata) of each Predict.
        self.brought = []  # Whether it brought features of the user.
        self.kept = set()
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
        self.brought.append(len(request.user_features) > 0)
        key = (request.user_key, request.user_version)
        if request.user_features:
            self.kept.add(key)
        elif request.user_key and key not in self.kept:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "send user_features again")
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


def stopped(pid):
    states = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8") as file:
            states.add(file.read().rpartition(")")[2].split()[0])
    return states == {"T"}


class Sleepy:
    """Takes so long, unless the client leaves."""

    def __init__(self, seconds):
        self.seconds, self.left = seconds, 0

    def __call__(self, context):
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            if not context.is_active():
                self.left += 1
                return
            time.sleep(0.005)


def answers(_):
    """At once."""


class ClientPackageTest:
    """What every client has to do.  `connect` gives a function that makes a call, or `burst` of
    them at once, and one that ends the client; a call returns an Answer."""

    @classmethod
    def setUpClass(cls):
        cls.work = env.scratch(cls.__name__)
        cls.build()
        cls.models = [os.path.join(cls.work, f"models{stamp}") for stamp in (1, 2, 3)]
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
        self.assertEqual(answer.code, "OK", answer.details)
        (stamp,) = set(np.array(answer.scores).ravel() / (np.array(IDS) + 1))
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
            # The same one for every client.
            self.assertEqual(homes, {user: 1 + (home_of(user, [one.target, two.target]) == two.target)
                                     for user in USERS})
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
            self.assertEqual(call(user="u", priority="high").code, "OK")
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
                (exhausted, None, 1), (unavailable, -1, 1), (unavailable, "soon", 1),
                (exhausted, hour, 1),
                (grpc.StatusCode.INVALID_ARGUMENT, None, 1)):
            with self.subTest(code=code, pushback=pushback), \
                    Scripted(refusing(code, pushback, times=9)) as server:
                self.assertEqual(self.open(server.target)(user="u").code, code.name)
                self.assertEqual(len(server.arrivals), calls)

    def test_the_deadline_is_that_of_all_attempts(self):
        with Scripted(lambda context: time.sleep(2)) as server:
            call = self.open(server.target, timeout=0.5)
            self.assertEqual(call(user="u").code, "DEADLINE_EXCEEDED")
        self.assertLessEqual(len(server.arrivals), 1)

    def test_the_deadline_of_an_attempt(self):
        with Scripted(Sleepy(60)) as one, Scripted(answers, 2) as two:
            self.assertEqual(self.homes(self.open(one.target, two.target, attempt_timeout=0.2)),
                             {2})
            self.assertGreater(len(one.arrivals), 0)

    def test_a_hedge_wins_over_a_slow_replica(self):
        sleepy = Sleepy(60)
        with Scripted(sleepy) as one, Scripted(answers, 2) as two:
            call = self.open(one.target, two.target, hedge_after=0.05, hedge_share=1)
            self.assertEqual(self.homes(call), {2})
            self.assertGreater(len(one.arrivals), 0)
            wait_for(lambda: sleepy.left == len(one.arrivals), "the other one was cancelled")

    def test_a_hedge_does_not_end_a_call_that_it_cannot_answer(self):
        with Scripted(Sleepy(0.5)) as one, \
                Scripted(refusing(grpc.StatusCode.UNAVAILABLE, times=99), 2) as two:
            call = self.open(one.target, two.target, hedge_after=0.05, hedge_share=1, attempts=1)
            self.assertEqual(self.stamp(call(user=self.user_of(one, two))), 1)
            self.assertEqual(len(two.arrivals), 1)

    def test_hedges_keep_to_their_budget(self):
        """At most one of a call, one at first, and then one in twenty calls."""
        with Scripted(Sleepy(0.05)) as one, Scripted(Sleepy(0.05), 2) as two:
            call = self.open(one.target, two.target, hedge_after=0.005)
            for _ in range(60):
                self.assertEqual(call().code, "OK")
            hedges = len(one.arrivals) + len(two.arrivals) - 60
            self.assertGreaterEqual(hedges, 1)
            self.assertLessEqual(hedges, 1 + 60 // 20)

    def test_hedges_after_what_calls_take(self):
        sleepy = Sleepy(0)
        with Scripted(sleepy) as one, Scripted(answers, 2) as two:
            call = self.open(one.target, two.target, hedge_after="p95", hedge_share=1)
            user = self.user_of(one, two)
            for _ in range(30):
                self.assertEqual(call(user=user).code, "OK")
            sleepy.seconds = 60
            self.assertEqual(self.stamp(call(user=user)), 2)

    def user_of(self, one, two):
        return next(user for user in USERS if home_of(user, [one.target, two.target]) == one.target)

    def test_a_replica_that_does_not_serve_gets_nothing(self):
        with Scripted(answers) as one, \
                Scripted(refusing(grpc.StatusCode.UNAVAILABLE, times=999), 2) as two:
            one.serving = False
            call = self.open(one.target, two.target)
            wait_for(lambda: call(user=self.user_of(one, two)).code == "UNAVAILABLE", "it is known")
            before = len(one.arrivals)
            for user in USERS:
                self.assertEqual(call(user=user).code, "UNAVAILABLE")
            self.assertEqual(len(one.arrivals), before)
            two.serving = False
            wait_for(lambda: call().details == "no replica serves", "nobody is left")

    def test_many_calls_of_one_user_spread(self):
        with Scripted(Sleepy(1)) as one, Scripted(Sleepy(1), 2) as two:
            call = self.open(one.target, two.target)
            found = collections.Counter(map(self.stamp, call(user=self.user_of(one, two), burst=16)))
        self.assertGreaterEqual(found[1], found[2])
        self.assertGreaterEqual(found[2], 4)

    def test_users_by_key(self):
        """Features go where they are not, once; they are no attempt."""
        user = {"age": {"floats": [7], "shape": [1, 1]}}
        with Scripted(answers) as one, Scripted(answers, 2) as two:
            call = self.open(one.target, two.target, attempts=1)
            name = self.user_of(one, two)
            for version in (1, 1, 2):
                self.assertEqual(self.stamp(call(user=name, user_features=user, user_key="k",
                                                 user_version=version)), 1)
            self.assertEqual(one.brought, [False, True, False, False, True])
            self.assertEqual(two.brought, [])
            # Who has no features learns that they are wanted.
            answer = call(user=name, user_key="other", user_version=1)
            self.assertEqual((answer.code, len(one.brought)), ("FAILED_PRECONDITION", 6))

    def test_users_by_key_of_a_real_daemon(self):
        models = os.path.join(env.scratch(type(self).__name__), "models")
        add_shop(models)
        arrays = shop().inputs(5, seed=3)
        request = predict_request("shop", arrays, USER)
        with Daemon(models, name=f"{type(self).__name__}Shop") as daemon:
            call = self.open(daemon.target)
            expected = shop().scores(arrays)
            for _ in range(3):
                answer = call(model="shop", user_features=plain(request.user_features),
                              ads=plain(request.ad_features), user_key="anna", user_version=1,
                              outputs=["buy"])
                self.assertEqual(answer.code, "OK", answer.details)
                np.testing.assert_allclose(np.array(answer.scores).ravel(),
                                           expected["buy"].ravel(), atol=1e-5)
            known = scrape(daemon)
            self.assertEqual([known.sum("ulfd_kept_users_total", result=result)
                              for result in ("hit", "miss")], [2, 1])

    def test_the_best_outputs_and_times(self):
        with self.daemon(2) as daemon:
            call = self.open(daemon.target)
            answer = call(top_k=1, outputs=["score"], return_timings=True)
            self.assertEqual((answer.code, list(answer.indices)), ("OK", [1]))
            self.assertEqual(list(np.array(answer.scores).ravel()), [6])
            self.assertGreater(answer.timings["total_us"], 0)
            answer = call(outputs=["scor"])
            self.assertEqual(answer.code, "INVALID_ARGUMENT")
            self.assertIn("scor", answer.details)

    def test_no_call_fails_while_one_is_slow_one_drains_and_one_is_killed(self):
        one, two, three = (self.daemon(stamp) for stamp in (1, 2, 3))
        for daemon in (one, two, three):
            self.addCleanup(daemon.kill)
        call = self.open(one.target, two.target, three.target, hedge_after=0.1, hedge_share=1)
        self.assertEqual(self.homes(call), {1, 2, 3})
        one.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: stopped(one.process.pid), "every thread stands")
        self.assertEqual(self.homes(call), {2, 3})
        one.process.send_signal(signal.SIGCONT)
        two.terminate()
        wait_for(lambda: self.homes(call) == {1, 3}, "every user has moved")
        self.assertEqual(two.wait(), 0)
        one.kill()
        for _ in range(3):
            self.assertEqual(self.homes(call), {3})

    def test_errors_of_a_real_daemon(self):
        with self.daemon(1) as daemon:
            call = self.open(daemon.target)
            self.assertEqual(call(model="stampp").code, "NOT_FOUND")
            self.assertEqual(call(ads={"add": {"ids": IDS}}).code, "INVALID_ARGUMENT")
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

        def given(features):
            types = {"floats": np.float32, "int32s": np.int32, "int64s": np.int64}
            return {name: Sparse(**value) if "ids" in value else
                    next(np.array(value[field], kind).reshape(value["shape"])
                         for field, kind in types.items() if field in value)
                    for name, value in features.items()}

        def one(model, user, user_features, ads, fields):
            try:
                reply = client.predict(model, given(user_features), given(ads), user_id=user,
                                       **fields)
            except grpc.RpcError as error:
                return Answer(error.code().name, details=error.details())
            (scores,) = reply.outputs.values()
            return Answer("OK", scores, reply.indices, reply.timings)

        def call(model="stamp", user="", user_features={}, ads={"ad": {"ids": IDS}}, burst=1,
                 **fields):
            if burst == 1:
                return one(model, user, user_features, ads, fields)
            with concurrent.futures.ThreadPoolExecutor(burst) as pool:
                return list(pool.map(lambda _: one(model, user, user_features, ads, fields),
                                     range(burst)))
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

    def test_what_cannot_be_sent_is_refused(self):
        """By name, before anything is sent."""
        from ulfd_client import Client, Sparse, TopK, make_request
        for wanted, options in (
                ("version 1 and label 'c': want one", {"version": 1, "label": "c"}),
                ("version: 1.5, want an integer", {"version": 1.5}),
                ("version: '2', want an integer", {"version": "2"}),
                ("version: True, want an integer", {"version": True}),
                ("version: 0, want 1 to", {"version": 0}),
                ("label: 3, want text", {"label": 3}),
                ("outputs: 'score', want a list", {"outputs": "score"}),
                ("outputs: 7, want text", {"outputs": [7]}),
                ("top_k: 0, want 1 to", {"top_k": 0}),
                ("top_k: 1.5, want an integer", {"top_k": 1.5}),
                ("top_k.column: 'a', want an integer", {"top_k": TopK(1, column="a")}),
                ("user_key and user_version", {"user_key": "k"}),
                ("user_key and user_version", {"user_version": 1}),
                ("user_version: 0, want 1 to", {"user_key": "k", "user_version": 0}),
                ("request_id: 7, want text", {"request_id": 7}),
                ("x: .*want float, int32, int64 or Sparse", {"ads": {"x": ["a"]}}),
                ("x: 1e\\+300, want 32-bit floats", {"ads": {"x": [1.0, 1e300]}}),
                ("x.ids: want 64-bit integers: ", {"ads": {"x": Sparse([1.5])}}),
                ("x.ids: want 64-bit integers: ", {"ads": {"x": Sparse(7)}}),
                ("x.ids: want 64-bit integers: ", {"ads": {"x": Sparse(np.array([1.5]))}}),
                ("x.ids: want 64-bit integers: ", {"ads": {"x": Sparse(np.array([[1], [2]]))}}),
                ("x.ids: want 64-bit integers: ", {"ads": {"x": Sparse([2 ** 63])}}),
                ("x.values: .*want numbers", {"ads": {"x": Sparse([1], ["a"])}}),
                ("x.values: 1e\\+39, want 32-bit", {"ads": {"x": Sparse([1], [1e39])}}),
                ("x.counts: want 32-bit integers: ",
                 {"ads": {"x": Sparse([1], (), [2 ** 32 + 2])}})):
            with self.subTest(wanted), self.assertRaisesRegex((TypeError, ValueError), wanted):
                make_request("m", {}, options.pop("ads", {}), **options)
        for wanted, targets, options in (
                ("targets: '127.0.0.1:1', want a list", "127.0.0.1:1", {}),
                ("targets: \\[\\], want a list", [], {}),
                ("targets: '', want HOST:PORT", [""], {}),
                ("targets: 7, want text", [7], {}),
                ("attempts: 0, want 1 to", ["a:1"], {"attempts": 0}),
                ("timeout: 0, want more than 0", ["a:1"], {"timeout": 0}),
                ("timeout: nan, want more than 0", ["a:1"], {"timeout": float("nan")}),
                ("timeout: None, want a number", ["a:1"], {"timeout": None}),
                ("hedge_after: 'p50', want a number", ["a:1"], {"hedge_after": "p50"}),
                ("hedge_share: 2, want", ["a:1"], {"hedge_share": 2}),
                ("load_factor: 1, want more than 1", ["a:1"], {"load_factor": 1}),
                ("token: 7, want text", ["a:1"], {"token": 7}),
                ("^token: want printable ASCII$", ["a:1"], {"token": "secret\n"}),
                ("^token: a:1 is another machine", ["127.0.0.1:1", "a:1"], {"token": "secret"}),
                ("user_hash_key: 'X-User', want lower-case", ["a:1"],
                 {"user_hash_key": "X-User"})):
            with self.subTest(wanted), self.assertRaisesRegex((TypeError, ValueError), wanted):
                Client(targets, **options)
        with Client(["127.0.0.1:1"]) as client:
            for wanted, options in (("priority: 'urgent', want high", {"priority": "urgent"}),
                                    ("user_id: 7, want text", {"user_id": 7}),
                                    ("timeout: -1, want more than 0", {"timeout": -1})):
                with self.subTest(wanted), self.assertRaisesRegex((TypeError, ValueError), wanted):
                    client.predict("m", {}, {}, **options)


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

    def run_script(self, script):
        done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=False,
                              env={**os.environ, **self.environment}, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_what_cannot_be_sent_is_refused(self):
        """By name, before anything is sent."""
        whole = "want 64-bit integers (above 2^53 as text or bigint)"
        best = "an integer of 1 to"
        cases = [
            ("{ ads: { x: { ids: [1.5] } } }", f"x.ids: 1.5, {whole}"),
            ("{ ads: { x: { ids: [undefined] } } }", f"x.ids: undefined, {whole}"),
            ("{ ads: { x: { ids: [2 ** 60] } } }", f"x.ids: 1152921504606847000, {whole}"),
            ("{ ads: { x: { ids: ['1e3'] } } }", f"x.ids: 1e3, {whole}"),
            ("{ ads: { x: { ids: [2n ** 63n] } } }", f"x.ids: 9223372036854775808, {whole}"),
            ("{ ads: { x: { ids: [1], counts: [2 ** 32 + 2] } } }",
             "x.counts: 4294967298, want 32-bit integers"),
            ("{ ads: { x: { int32s: [2 ** 31] } } }", "x.int32s: 2147483648, want 32-bit integers"),
            ("{ ads: { x: { floats: ['1'] } } }", "x.floats: 1, want numbers"),
            ("{ ads: { x: { floats: [1e39] } } }", "x.floats: 1e+39, want 32-bit floats"),
            ("{ ads: { x: { idz: [1] } } }", "x.idz: unknown"),
            ("{ ads: { x: { ids: [1], floats: [1] } } }",
             "x: ids and floats, want one of ids, floats, int32s, int64s"),
            ("{ ads: { x: { floats: [1], int32s: [1] } } }",
             "x: floats and int32s, want one of ids, floats, int32s, int64s"),
            ("{ ads: { x: {} } }", "x: nothing, want one of ids, floats, int32s, int64s"),
            ("{ ads: { x: { ids: [1], shape: [1] } } }", "x.shape: not with ids"),
            ("{ ads: { x: { floats: [1], counts: [1] } } }", "x.counts: not with floats"),
            ("{ topk: 1 }", "topk: unknown"),
            ("{ toString: 1 }", "toString: unknown"),
            ("{ topK: 1.5 }", f"topK: 1.5, want {best}"),
            ("{ topK: { k: 1, col: 2 } }", "topK.col: unknown"),
            ("{ version: 1.5 }", f"version: 1.5, want {best}"),
            ("{ version: '2x' }", f'version: "2x", want {best}'),
            ("{ version: NaN }", f"version: NaN, want {best}"),
            ("{ version: 0 }", f"version: 0, want {best}"),
            ("{ version: 1, label: 'c' }", 'version 1 and label "c": want one of the two'),
            ("{ outputs: 'score' }", 'outputs: "score", want an array of texts'),
            ("{ outputs: [7] }", "outputs: 7, want text"),
            ("{ userId: 7 }", "userId: 7, want text"),
            ("{ userKey: 'k' }", "userKey and userVersion: want both or none"),
            ("{ returnTimings: 1 }", "returnTimings: 1, want true or false"),
            ("{ priority: 'urgent' }", 'priority: "urgent", want high, normal, low'),
            ("{ timeoutMs: 0 }", "timeoutMs: 0, want a number above 0"),
            ("{ timeoutMs: Infinity }", "timeoutMs: Infinity, want a number above 0"),
        ]
        lines = self.run_script(f"""
            const {{ Client }} = require('ulfd-client');
            const client = new Client(['127.0.0.1:1'], {{ timeoutMs: 50, attempts: 1 }});
            (async () => {{
              for (const options of [{", ".join(given for given, _ in cases)}]) {{
                const error = await client.predict('m', options).catch((e) => e);
                console.log(error instanceof TypeError ? error.message : error.code);
              }}
              client.close();
            }})();
        """)
        self.assertEqual(len(lines), len(cases))
        for line, (given, wanted) in zip(lines, cases):
            self.assertEqual(line[:len(wanted)], wanted, given)

    def test_numbers_at_the_edge_are_sent(self):
        lines = self.run_script("""
            const { Client } = require('ulfd-client');
            const client = new Client(['127.0.0.1:1'], { timeoutMs: 50, attempts: 1 });
            const given = [{ ids: new BigInt64Array([1n, -2n]), values: new Float32Array(2) },
              { int64s: ['-9223372036854775808'] }, { int32s: [-(2 ** 31)], floats: undefined },
              { floats: [NaN, -Infinity, 3.4e38] }];
            (async () => {
              for (const feature of given) {
                const error = await client.predict('m', { ads: { x: feature } }).catch((e) => e);
                console.log(error.code);
              }
              client.close();
            })();
        """)
        unavailable = {str(code.value[0]) for code in (grpc.StatusCode.UNAVAILABLE,
                                                       grpc.StatusCode.DEADLINE_EXCEEDED)}
        self.assertEqual(len(lines), 4)
        self.assertLessEqual(set(lines), unavailable)

    def test_options_of_the_client(self):
        cases = [
            ("'127.0.0.1:1'", 'targets: "127.0.0.1:1", want an array of texts'),
            ("[]", "targets: [], want HOST:PORT of every replica"),
            ("['']", 'targets: [""], want HOST:PORT of every replica'),
            ("[7]", "targets: 7, want text"),
            ("['a:1'], { attempts: 0 }", "attempts: 0, want an integer of 1 to"),
            ("['a:1'], { timeoutMs: NaN }", "timeoutMs: NaN, want a number above 0"),
            ("['a:1'], { timeoutMs: null }", "timeoutMs: null, want a number above 0"),
            ("['a:1'], { timeoutMs: 2 ** 31 }", "timeoutMs: 2147483648, want a number above 0"),
            ("['a:1'], { hedgeAfterMs: 'p50' }", 'hedgeAfterMs: "p50", want a number'),
            ("['a:1'], { hedgeShare: 2 }", "hedgeShare: 2, want a number above 0 and at most 1"),
            ("['a:1'], { userKey: 'k' }", "userKey: unknown"),
            ("['a:1'], { userHashKey: 'X-User' }", 'userHashKey: "X-User", want lower-case'),
            ("['a:1'], { token: 'secret\\n' }", "token: want printable ASCII"),
            ("['localhost:1', 'a:1'], { token: 'secret' }", "token: a:1 is another machine"),
            ("['a:1'], null", "options: null, want an object"),
        ]
        constructions = ", ".join(f"() => new Client({given})" for given, _ in cases)
        lines = self.run_script(f"""
            const {{ Client }} = require('ulfd-client');
            for (const make of [{constructions}]) {{
              try {{ make().close(); console.log('made'); }} catch (e) {{ console.log(e.message); }}
            }}
        """)
        self.assertEqual(len(lines), len(cases))
        for line, (given, wanted) in zip(lines, cases):
            self.assertEqual(line[:len(wanted)], wanted, given)

    def test_undefined_means_the_default(self):
        names = ("credentials token userHashKey healthService timeoutMs attempts attemptTimeoutMs "
                 "hedgeAfterMs hedgeShare loadFactor").split()
        with self.daemon(1) as daemon:
            lines = self.run_script(f"""
                const {{ Client }} = require('ulfd-client');
                (async () => {{
                  for (const name of {json.dumps(names)}) {{
                    const client = new Client(['{daemon.target}'], {{ [name]: undefined }});
                    const {{ version }} = await client.predict('stamp',
                      {{ ads: {{ ad: {{ ids: [1] }} }}, userId: 'u', timeoutMs: undefined }});
                    console.log(version);
                    client.close();
                  }}
                }})();
            """)
        self.assertEqual(lines, ["1"] * len(names))

    def example(self, *args):
        return ["node", os.path.join(PACKAGES, "node", "example.js"), *args]

    @staticmethod
    def number(value):
        return f"{value:.0f}"

    def connect(self, targets, timeout, **options):
        process = subprocess.Popen(
            ["node", os.path.join(env.E2E, "clients", "calls.js")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={**os.environ, **self.environment})
        camel = {"attempt_timeout": "attemptTimeoutMs", "hedge_after": "hedgeAfterMs",
                 "hedge_share": "hedgeShare", "top_k": "topK", "return_timings": "returnTimings",
                 "user_key": "userKey", "user_version": "userVersion"}

        def send(message):
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()

        def receive():
            answer = json.loads(process.stdout.readline())
            if "code" in answer:
                codes = {code.value[0]: code.name for code in grpc.StatusCode}
                return Answer(codes[answer["code"]], details=answer["details"])
            timings = {re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name): value
                       for name, value in answer.get("timings", {}).items()}
            (output,) = answer["outputs"].values()
            return Answer("OK", output["values"], answer["indices"], timings)

        def call(model="stamp", user="", user_features={}, ads={"ad": {"ids": IDS}}, burst=1,
                 **fields):
            send({"model": model, "userId": user, "user": user_features, "ads": ads, "burst": burst,
                  **{camel.get(name, name): value for name, value in fields.items()}})
            found = [receive() for _ in range(burst)]
            return found if burst > 1 else found[0]

        def close():
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 0)

        for name in ("attempt_timeout", "hedge_after"):
            if isinstance(options.get(name), float):
                options[name] *= 1000
        send({"targets": targets, "timeoutMs": timeout * 1000,
              **{camel.get(name, name): value for name, value in options.items()}})
        return call, close


def message_of(features):
    """The other way round of `plain`."""
    result = []
    for name, value in features.items():
        kind = "sparse" if "ids" in value else "dense"
        result.append(native_pb.Feature(**{"name": name, kind: value}))
    return result


class CppClientTest(ClientPackageTest, unittest.TestCase):
    environment = {}

    @classmethod
    def build(cls):
        if not os.path.exists(env.program("ulfd_client_calls")):
            raise unittest.SkipTest("no ulfd_client_calls beside ulfd")

    def example(self, *args):
        return [env.program("ulfd_client_example"), *args]

    @staticmethod
    def number(value):
        return f"{value:.0f}"

    def start(self, targets, options):
        process = subprocess.Popen([env.program("ulfd_client_calls")], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdin.write(json.dumps({"targets": targets, **options}) + "\n")
        process.stdin.flush()
        return process

    def connect(self, targets, **options):
        process = self.start(targets, options)

        def receive():
            answer = json.loads(process.stdout.readline())
            if "code" in answer:
                codes = {code.value[0]: code.name for code in grpc.StatusCode}
                return Answer(codes[answer["code"]], details=answer["details"])
            reply = json_format.ParseDict(answer, native_pb.PredictResponse())
            (output,) = reply.outputs
            timings = {field.name: value for field, value in reply.timings.ListFields()}
            return Answer("OK", list(output.values), list(reply.indices), timings)

        def call(model="stamp", user="", user_features={}, ads={"ad": {"ids": IDS}}, burst=1,
                 priority="", top_k=None, **fields):
            request = native_pb.PredictRequest(
                model=native_pb.ModelSpec(name=model), user_features=message_of(user_features),
                ad_features=message_of(ads), **fields)
            if top_k:
                request.top_k.k = top_k
            process.stdin.write(json.dumps({
                "request": json_format.MessageToDict(request), "user": user, "priority": priority,
                "burst": burst}) + "\n")
            process.stdin.flush()
            found = [receive() for _ in range(burst)]
            return found if burst > 1 else found[0]

        def close():
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 0)
        return call, close

    def test_what_cannot_be_sent_is_refused(self):
        """By name, before anything is sent."""
        for wanted, targets, options in (
                ("targets: none, want HOST:PORT of every replica", [], {}),
                ('targets: "", want HOST:PORT', [""], {}),
                ("attempts: 0, want 1 to 100", ["a:1"], {"attempts": 0}),
                ("timeout: 0 ms, want 1 to 2147483647", ["a:1"], {"timeout": 0}),
                ("attempt_timeout: -5 ms, want 0 to", ["a:1"], {"attempt_timeout": -0.005}),
                ("hedge_after: -5 ms, want -1 to", ["a:1"], {"hedge_after": -0.005}),
                ("hedge_share: 2.0", ["a:1"], {"hedge_share": 2}),
                ("load_factor: 1.0", ["a:1"], {"load_factor": 1}),
                ("token: want printable ASCII", ["[::1]:1"], {"token": "a\nb"}),
                ("token: a:1 is another machine", ["unix:x", "a:1"], {"token": "secret"}),
                ('user_hash_key: "X-User", want lower-case', ["a:1"], {"user_hash_key": "X-User"})):
            with self.subTest(wanted):
                process = self.start(targets, options)
                _, errors = process.communicate(timeout=30)
                self.assertEqual(process.returncode, 1)
                self.assertEqual(errors[:len(wanted)], wanted)
        call = self.open("127.0.0.1:1")
        answer = call(priority="urgent")
        self.assertEqual((answer.code, answer.details), (
            "INVALID_ARGUMENT", 'priority: "urgent", want high, normal or low'))

    def test_the_last_call_outlives_its_hedge(self):
        """A client that ends waits for what it cancelled."""
        with Scripted(Sleepy(60)) as one, Scripted(answers, 2) as two:
            for _ in range(10):
                call, close = self.connect([one.target, two.target], timeout=30, hedge_after=0.02,
                                           hedge_share=1)
                self.assertEqual(self.stamp(call(user=self.user_of(one, two))), 2)
                close()

    def test_a_project_that_has_it_installed(self):
        build = os.path.dirname(os.path.dirname(env.program("ulfd")))
        if not os.path.exists(os.path.join(build, "cmake_install.cmake")):
            self.skipTest("no build folder around the programs")
        prefix, project = (os.path.join(self.work, name) for name in ("prefix", "project"))
        os.makedirs(project)
        shutil.copy(os.path.join(PACKAGES, "cpp", "example.cc"), project)
        with open(os.path.join(project, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\n"
                       "project(caller CXX)\n"
                       "find_package(ulfd REQUIRED COMPONENTS client)\n"
                       "add_executable(caller example.cc)\n"
                       "target_link_libraries(caller PRIVATE ulfd::client)\n")
        for command in (["cmake", "--install", build, "--component", "dev", "--prefix", prefix],
                        ["cmake", "-S", project, "-B", f"{project}/b", f"-DCMAKE_PREFIX_PATH={prefix}"],
                        ["cmake", "--build", f"{project}/b"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with self.daemon(2) as daemon:
            done = subprocess.run([f"{project}/b/caller", daemon.target, "stamp", "ad"],
                                  capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, "stamp v1 score: 4 6\n")
