"""Many calls at a time, too many calls, calls that nobody waits for, and memory after many calls.
SPDX-License-Identifier: Apache-2.0
"""
import time
import unittest

import grpc
import numpy as np

from harness import env
from harness.callers import together
from harness.clients import (Client, infer_outputs, infer_request, outputs_of, predict_request)
from harness.daemon import FAST, wait_for
from harness.fixtures import BusyTest, DaemonTest, add_heavy, add_shop, add_stamp, shop
from harness.metrics import scrape
from harness.shop import USER
from harness.small import heavy_inputs, stamp_inputs, stamp_of


class ConcurrencyTest(DaemonTest):
    # A machine that others use may take long; here it is about answers.
    CONFIG = FAST + "grpc_threads: 3 scheduling { max_queued_ms: 60000 codel_target_ms: 0 }"

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        add_stamp(repository, 3)
        add_heavy(repository)

    def test_16_clients_with_mixed_models_and_sizes(self):
        heavy = predict_request("heavy", heavy_inputs(20), ())
        heavy_expected = outputs_of(self.client.predict(heavy))["score"]

        def one(client, random):
            kind = random.randint(4)
            if kind == 0:
                ids = random.randint(0, 50, random.randint(1, 30)).tolist()
                reply = client.predict(predict_request("stamp", stamp_inputs(ids), ()))
                assert stamp_of(ids, outputs_of(reply)["score"].ravel().tolist()) == 3.0
            elif kind == 1:
                found = outputs_of(client.predict(heavy))["score"]
                np.testing.assert_allclose(found, heavy_expected, atol=1e-6)
            else:
                ads = int(random.choice([1, 3, 10, 100]))
                arrays = shop().inputs(ads, seed=int(random.randint(1000)))
                if kind == 2:
                    found = outputs_of(client.predict(predict_request("shop", arrays, USER)))
                else:
                    found = infer_outputs(client.infer(infer_request("shop", arrays, USER)))
                for name, values in shop().scores(arrays).items():
                    np.testing.assert_allclose(found[name], values, atol=1e-5)

        def run(seed):
            random = np.random.RandomState(seed)
            with Client(self.daemon) as client:
                for _ in range(40):
                    one(client, random)

        together(run, 16)
        self.idle()


class OverloadTest(BusyTest):
    """One worker and a short queue; long calls are neither cut nor overtaken while they run."""

    CONFIG = FAST + """
workers: 1
limits { max_queued_requests: 3 max_queued_rows: 7000 }
scheduling { tile_us: 1000000 max_queued_ms: 60000 codel_target_ms: 0 }
"""

    def candidates(self, model="stamp"):
        return scrape(self.daemon).sum("ulfd_candidates_total", model=model)

    def test_full_queue_refuses_at_once_with_a_reason(self):
        shed = scrape(self.daemon).sum("ulfd_shed_total", reason="queue_full")
        futures = [self.client.Predict.future(self.heavy, timeout=60) for _ in range(12)]
        codes, texts, refused_after = [], [], []
        for future in futures:
            begin = time.monotonic()
            error = future.exception()
            if error is None:
                codes.append(grpc.StatusCode.OK)
                continue
            refused_after.append(time.monotonic() - begin)
            codes.append(error.code())
            texts.append(error.details())
        refused = codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertEqual(refused + codes.count(grpc.StatusCode.OK), 12, codes)
        self.assertGreaterEqual(refused, 4)
        self.assertGreaterEqual(codes.count(grpc.StatusCode.OK), 3)
        for text in texts:
            self.assertRegex(text, "^queue_full: ")
        self.assertEqual(scrape(self.daemon).sum("ulfd_shed_total", reason="queue_full") - shed,
                         refused)
        self.idle()
        self.client.predict(self.stamp)

    def test_expired_call_is_not_computed(self):
        # gRPC may tell the daemon that the client left before the worker sees the deadline.
        def given_up():
            found = scrape(self.daemon)
            return (found.sum("ulfd_shed_total", reason="deadline") +
                    found.sum("ulfd_cancelled_total", stage="queue"))

        before, given_up_before = self.candidates(), given_up()
        busy = self.occupy(2)
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.predict(self.stamp, timeout=0.03)
        # The daemon may know that it cannot make it, and says so at once.
        if caught.exception.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
            self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertRegex(caught.exception.details(), "^deadline: ")
        for future in busy:
            future.result()
        self.idle()
        self.assertEqual(self.candidates(), before)
        self.assertEqual(given_up(), given_up_before + 1)
        self.client.predict(self.stamp)
        self.assertEqual(self.candidates(), before + 1)

    def test_cancelled_call_is_not_computed(self):
        def cancel_behind_busy():
            """Whether the call was cancelled while it waited, as far as this side can tell."""
            busy = self.occupy(2)
            call = self.client.Predict.future(self.stamp, timeout=60)
            wait_for(lambda: scrape(self.daemon).sum("ulfd_inflight_requests") >= 3 or
                     all(f.done() for f in busy), "the call is queued", step=0.001)
            call.cancel()
            time.sleep(0.05)  # The daemon learns of it.
            waited = not all(f.done() for f in busy)
            for future in busy:
                future.result()
            self.idle()
            return waited

        # Where others use the machine, the calls ahead may be done before the cancellation is
        # there.
        for _ in range(10):
            before = self.candidates()
            cancelled = scrape(self.daemon).sum("ulfd_cancelled_total")
            if cancel_behind_busy():
                break
        found = scrape(self.daemon)
        self.assertEqual(self.candidates(), before)
        self.assertEqual(found.sum("ulfd_cancelled_total"), cancelled + 1)
        self.assertGreaterEqual(found.sum("ulfd_requests_total", code="CANCELLED"), 1)

    def test_a_running_call_stops_when_its_client_leaves(self):
        before = scrape(self.daemon).sum("ulfd_cancelled_total")
        call = self.client.Predict.future(self.heavy, timeout=60)
        wait_for(lambda: scrape(self.daemon).sum("ulfd_inflight_requests") >= 1 or call.done(),
                 "the call is there", step=0.001)
        call.cancel()
        self.idle()
        self.assertEqual(scrape(self.daemon).sum("ulfd_cancelled_total"), before + 1)

    def test_clients_that_vanish(self):
        """Connections cut in the middle of calls leave nothing behind."""
        for _ in range(10):
            client = Client(self.daemon)
            futures = [client.Predict.future(self.heavy, timeout=60) for _ in range(3)]
            time.sleep(0.01)
            client.close()
            for future in futures:
                future.exception()
        self.idle()
        self.client.predict(self.stamp)


@unittest.skipIf(env.SANITIZED, "memory of a sanitized build says nothing")
class MemoryTest(DaemonTest):
    CALLS, WARM = 10000, 2000

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        add_stamp(repository, 1)

    def test_memory_is_flat(self):
        requests = []
        for seed in range(40):
            arrays = shop().inputs(1 + 5 * seed, seed=seed)
            requests.append((self.client.Predict, predict_request("shop", arrays, USER)))
            requests.append((self.client.ModelInfer, infer_request("shop", arrays, USER)))
            requests.append((self.client.Predict, predict_request("stamp", stamp_inputs([seed]),
                                                                  ())))
            bad = predict_request("shop", arrays, USER)
            bad.ad_features[0].name = f"nothing_{seed}"
            requests.append((self.client.Predict, bad))
        sizes, pending = {}, []
        for i in range(1, self.CALLS + 1):
            call, request = requests[i % len(requests)]
            pending.append(call.future(request, timeout=60))
            if len(pending) == 20:
                for future in pending:
                    future.exception()
                pending = []
            if i in (self.WARM, self.CALLS):
                sizes[i] = self.daemon.resident_bytes()
        early, late = sizes[self.WARM], sizes[self.CALLS]
        print(f"[RSS {early / 1e6:.1f} MB after {self.WARM} calls, {late / 1e6:.1f} MB after "
              f"{self.CALLS}] ", end="", flush=True)
        self.assertLessEqual(late, early * 1.05 + (1 << 20))
