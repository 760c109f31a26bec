"""Health, HTTP pages, readiness, and the orderly end.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import signal
import threading
import time
import unittest

import grpc

import health_v1_pb2 as health_pb
import kserve_v2_pb2 as kserve_pb
from harness import env
from harness.clients import Client, native_pb, outputs_of, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import DaemonTest, add_heavy, add_shop, add_stamp, shop
from harness.shop import USER
from harness.small import heavy_inputs, stamp_inputs

SERVING = health_pb.HealthCheckResponse.SERVING
NOT_SERVING = health_pb.HealthCheckResponse.NOT_SERVING
FAILED, LOADED = native_pb.VERSION_STATE_FAILED, native_pb.VERSION_STATE_SERVING
SERVICES = ["", "ulfd.v1.PredictionService", "inference.GRPCInferenceService",
            "tensorflow.serving.PredictionService", "model/shop"]


def repository(name):
    path = os.path.join(env.scratch(name), "models")
    os.makedirs(path)
    return path


class HealthTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        add_shop(repository)

    def test_check(self):
        for service in SERVICES:
            wait_for(lambda: self.client.health(service) == "SERVING",
                     f"{service!r} is serving")  # Soon after the models are.

    def test_check_of_unknown_service(self):
        for service in ("nobody", "model/nobody"):
            with self.assert_refused(grpc.StatusCode.NOT_FOUND):
                self.client.health(service)

    def test_watch_of_a_name_that_is_too_long(self):
        # A watch keeps its name.
        watch = self.client.Watch(health_pb.HealthCheckRequest(service="n" * 2000), timeout=30)
        with self.assertRaises(grpc.RpcError) as caught:
            next(watch)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual(caught.exception.details(),
                         "health: the service has a name of 2000 bytes, want at most 1024")

    def test_watch_of_unknown_service_goes_on(self):
        watch = self.client.Watch(health_pb.HealthCheckRequest(service="nobody"), timeout=30)
        self.assertEqual(next(watch).status, health_pb.HealthCheckResponse.SERVICE_UNKNOWN)
        watch.cancel()

    def test_pages(self):
        for path in ("/healthz", "/readyz"):
            self.assertEqual(self.daemon.http(path)[0], 200, path)
        status, text = self.daemon.http("/statusz")
        self.assertEqual(status, 200)
        self.assertIn("shop", text)
        self.assertEqual(self.daemon.http("/nothing")[0], 404)

    def test_server_live_and_ready(self):
        self.assertTrue(self.client.ServerLive(kserve_pb.ServerLiveRequest(), timeout=10).live)
        self.assertTrue(self.client.ServerReady(kserve_pb.ServerReadyRequest(), timeout=10).ready)


class NotReadyTest(unittest.TestCase):
    def test_not_ready_until_the_model_is_there(self):
        models = repository("NotReadyTest")
        with Daemon(models, wait_ready=False) as daemon, Client(daemon) as client:
            self.assertEqual(daemon.http("/healthz")[0], 200)
            status, text = daemon.http("/readyz")
            self.assertEqual(status, 503, text)
            self.assertEqual(client.health(), "NOT_SERVING")
            self.assertFalse(client.ServerReady(kserve_pb.ServerReadyRequest(), timeout=10).ready)
            watch = client.Watch(health_pb.HealthCheckRequest(service="model/shop"), timeout=60)
            self.assertEqual(next(watch).status, health_pb.HealthCheckResponse.SERVICE_UNKNOWN)
            add_shop(models)
            daemon.wait_ready()
            # Health is told of changes: a moment after /readyz, which looks.
            wait_for(lambda: client.health() == "SERVING", "the health service says so too")
            states = []
            while not states or states[-1] != SERVING:
                states.append(next(watch).status)
            watch.cancel()

    def start_beside_a_broken_model(self, config):
        """A daemon whose models, one good and one broken, have been tried."""
        models = repository("NotReadyTest")
        add_stamp(models, 1)
        add_shop(models)
        with open(os.path.join(models, "shop", "1", "graph_ulf.txt"), "a", encoding="utf-8") as f:
            f.write('layer_params { type: "wishful_layer" bottom: "buy" top: "wish" }\n')
        daemon = Daemon(models, config=config, wait_ready=False)
        self.addCleanup(daemon.stop)
        client = Client(daemon)
        self.addCleanup(client.close)

        def settled():
            models = {model.name: [version.state for version in model.versions]
                      for model in client.list_models().models}
            return models == {"shop": [FAILED], "stamp": [LOADED]}

        wait_for(settled, "both loads have ended")
        reply = client.predict(predict_request("stamp", stamp_inputs([3]), ()))
        self.assertEqual(outputs_of(reply)["score"].tolist(), [[4.0]])
        return daemon, client

    def test_a_required_model_that_cannot_load_keeps_it_unready(self):
        for config in ("found_models_required: true", 'models { name: "shop" }'):
            with self.subTest(config):
                daemon, client = self.start_beside_a_broken_model(FAST + config)
                status, text = daemon.http("/readyz")
                self.assertEqual(status, 503)
                self.assertIn("wishful_layer", text)
                self.assertEqual(client.health(), "NOT_SERVING")

    def test_a_broken_model_does_not_take_the_others_out(self):
        daemon, client = self.start_beside_a_broken_model(FAST)
        daemon.wait_ready()
        wait_for(lambda: client.health() == "SERVING", "the health service says so too")
        self.assertEqual(client.health("model/shop"), "NOT_SERVING")

    def test_what_serves_nothing_any_more_is_not_ready(self):
        models = repository("NotReadyTest")
        with Daemon(models, wait_ready=False) as daemon, Client(daemon) as client:
            wait_for(lambda: "no model found yet" in daemon.log(), "the log says why")
            add_stamp(models, 1)
            daemon.wait_ready()
            shutil.rmtree(os.path.join(models, "stamp"))
            wait_for(lambda: daemon.http("/readyz")[0] == 503, "/readyz says 503")
            wait_for(lambda: client.health() == "NOT_SERVING", "the health service says so too")


class DrainTest(unittest.TestCase):
    CONFIG = """
watch { poll_interval_ms: 50 settle_time_ms: 300 }
shutdown { drain_delay_ms: 2500 drain_timeout_ms: 30000 }
workers: 2
scheduling { max_queued_ms: 600000 }
"""

    def drain(self, how):
        models = repository("DrainTest")
        add_shop(models)
        add_heavy(models)
        daemon = Daemon(models, config=self.CONFIG)
        client = Client(daemon)
        request = predict_request("shop", shop().inputs(7, seed=7), USER)
        slow = predict_request("heavy", heavy_inputs(), ())
        client.predict(slow)

        failures, done, late = [], [0], [0]
        stop, terminated = threading.Event(), threading.Event()

        def caller():
            with Client(daemon) as own:
                while not stop.is_set():
                    after = terminated.is_set()
                    try:
                        own.predict(request)
                        done[0] += 1
                        late[0] += after
                    except grpc.RpcError as error:
                        failures.append((after, error.code(), error.details()))

        threads = [threading.Thread(target=caller) for _ in range(3)]
        for thread in threads:
            thread.start()
        watch = client.Watch(health_pb.HealthCheckRequest(), timeout=60)
        self.assertEqual(next(watch).status, SERVING)
        wait_for(lambda: done[0] > 20 or failures, "calls under way")
        in_flight = [client.Predict.future(slow, timeout=60) for _ in range(3)]
        begin = time.monotonic()
        daemon.process.send_signal(how)
        terminated.set()
        self.assertEqual(next(watch).status, NOT_SERVING)
        self.assertEqual(daemon.http("/readyz")[0], 503)
        self.assertEqual(daemon.http("/healthz")[0], 200)
        self.assertEqual(client.health("ulfd.v1.PredictionService"), "NOT_SERVING")
        self.assertEqual(client.health("model/shop"), "NOT_SERVING")
        # A balancer needs time to turn away: calls go on as before.
        time.sleep(max(0.0, begin + 1.5 - time.monotonic()))
        stop.set()
        # Calls that wait or run when the delay ends are answered, too.
        last = [client.Predict.future(slow, timeout=60) for _ in range(12)]
        for thread in threads:
            thread.join()
        for future in in_flight + last:
            self.assertEqual(len(future.result().outputs[0].values), 2000)
        self.assertEqual(failures, [])
        self.assertGreater(late[0], 3)
        client.close()
        self.assertEqual(daemon.wait(), 0, daemon.log())
        self.assertGreaterEqual(time.monotonic() - begin, 2.5)

    def test_sigterm(self):
        self.drain(signal.SIGTERM)

    def test_sigint(self):
        self.drain(signal.SIGINT)

    def test_a_second_signal_hastens_the_end(self):
        models = repository("DrainTest")
        add_heavy(models)
        # Nothing is refused for the lack of time, however slow the machine.
        config = ("workers: 1\nscheduling { max_queued_ms: 3600000 codel_target_ms: 0 }\n"
                  "shutdown { drain_delay_ms: 60000 drain_timeout_ms: 60000 }\n")
        daemon = Daemon(models, config=config)
        with Client(daemon) as client:
            slow = predict_request("heavy", heavy_inputs(), ())
            client.predict(slow)
            calls = [client.Predict.future(slow, timeout=3600) for _ in range(30)]
            wait_for(lambda: calls[0].done(), "the first of them is answered")
            begin = time.monotonic()
            daemon.terminate()
            wait_for(lambda: client.health() == "NOT_SERVING", "it drains")
            self.assertTrue(daemon.alive())
            daemon.terminate()
            self.assertEqual(daemon.wait(), 0, daemon.log())
            # A minute of delay and seconds of work are left out.
            self.assertLess(time.monotonic() - begin, 5 * env.SLOWNESS)
            codes = [call.exception().code() for call in calls if call.exception()]
        self.assertGreater(len(codes), 10)
        self.assertLessEqual(set(codes), {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
        self.assertIn("hurried=1", daemon.log())

    def test_calls_after_the_delay_are_refused(self):
        models = repository("DrainTest")
        add_stamp(models, 1)
        config = FAST.replace("drain_delay_ms: 50", "drain_delay_ms: 0")
        daemon = Daemon(models, config=config)
        with Client(daemon) as client:
            request = predict_request("stamp", stamp_inputs([1]), ())
            client.predict(request)
            daemon.terminate()
            codes, details = set(), []

            def refused():
                try:
                    client.predict(request, timeout=5)
                except grpc.RpcError as error:
                    codes.add(error.code())
                    details.append(error.details())
                return codes

            wait_for(refused, "a refusal")
            # CANCELLED: gRPC 1.51 resets streams that race with its shutdown.
            self.assertLessEqual(codes, {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED},
                                 details)
        self.assertEqual(daemon.wait(), 0, daemon.log())
