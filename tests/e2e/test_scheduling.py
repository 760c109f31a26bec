"""Quotas, priorities, refusals that say when to come back, and calls that are merged.
SPDX-License-Identifier: Apache-2.0
"""
import grpc

from harness.clients import infer_request, outputs_of, predict_request
from harness.daemon import FAST, wait_for
from harness.fixtures import BusyTest
from harness.metrics import scrape
from harness.small import heavy_inputs, stamp_inputs, stamp_of

A, B = [("x-client", "a")], [("x-client", "b")]


class SchedulingTest(BusyTest):
    CONFIG = FAST + """
workers: 1
scheduling { max_queued_ms: 60000 codel_target_ms: 0 }
client_quota { metadata_key: "x-client" max_rows: 2010 }
"""

    def test_refusals_say_why_and_when_to_come_back(self):
        shed = scrape(self.daemon).sum("ulfd_shed_total", reason="quota")

        def refusal(call, request):
            (busy,) = self.occupy(metadata=A)
            try:
                call(request, timeout=60, metadata=A)
            except grpc.RpcError as error:
                return error
            finally:
                busy.result()
            return None  # The long call ended before this one came.

        for call, request in ((self.client.Predict, self.heavy),
                              (self.client.ModelInfer,
                               infer_request("heavy", heavy_inputs(), ()))):
            error = wait_for(lambda c=call, r=request: refusal(c, r), "a call beside another", 60)
            self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertEqual(error.details(),
                             "quota: the client has 2000 ads under way and this request has 2000, "
                             "its limit is 2010")
            pushback = dict(error.trailing_metadata())["grpc-retry-pushback-ms"]
            self.assertGreaterEqual(int(pushback), 1)
        (busy,) = self.occupy(metadata=A)
        # Other clients are not touched, and one without a name is a client of its own.
        self.client.Predict(predict_request("stamp", stamp_inputs([1]), ()), timeout=60, metadata=B)
        self.client.predict(predict_request("stamp", stamp_inputs([1]), ()))
        busy.result()
        self.assertEqual(scrape(self.daemon).sum("ulfd_shed_total", reason="quota"), shed + 2)
        self.client.Predict(self.heavy, timeout=60, metadata=A)

    def test_priorities(self):
        request = predict_request("stamp", stamp_inputs([1]), ())
        for word in ("high", "normal", "low"):
            self.client.Predict(request, timeout=60, metadata=[("ulfd-priority", word)])
        with self.assertRaises(grpc.RpcError) as caught:
            self.client.Predict(request, timeout=60, metadata=[("ulfd-priority", "urgent")])
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual(caught.exception.details(),
                         'priority "urgent", want high, normal or low')

    def test_small_calls_that_wait_are_merged_and_pass_a_large_one(self):
        before = scrape(self.daemon)
        (busy,) = self.occupy(metadata=A)
        ids = [[i % 50, (7 * i) % 50, i % 3] for i in range(60)]
        futures = [self.client.Predict.future(predict_request("stamp", stamp_inputs(one), ()),
                                              timeout=60) for one in ids]
        for one, future in zip(ids, futures):
            scores = outputs_of(future.result())["score"].ravel().tolist()
            self.assertEqual(stamp_of(one, scores), 1.0)
        busy.result()
        after = scrape(self.daemon)

        def grown(name):
            return after.sum(name) - before.sum(name)

        # The large call was cut, so there are more batches than calls; but not the small ones.
        self.assertEqual(grown("ulfd_batch_rows_sum"), 2000 + 180)
        self.assertGreater(grown("ulfd_batch_requests_count"), 20)
        self.assertEqual(after.sum("ulfd_shed_total"), before.sum("ulfd_shed_total"))
