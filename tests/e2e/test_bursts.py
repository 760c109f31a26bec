"""Clients that send many calls at once on a daemon that nobody else calls: connections take turns, and
no turn waits for an event of somebody else.
SPDX-License-Identifier: Apache-2.0
"""
import random
import time

import grpc

from harness import env
from harness.clients import outputs_of, predict_request
from harness.fixtures import DaemonTest, add_stamp
from harness.small import STAMP_IDS, stamp_inputs, stamp_of
from proto import predict_pb2 as pb

STAMP = 3
DEADLINE_S = 5 * env.SLOWNESS
BURSTS = 40 if env.SANITIZED else 300


class BurstsTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        add_stamp(repository, STAMP)

    def test_every_call_is_answered(self):
        draw = random.Random(1)
        # Of 2000 ads, 60 are more than a turn has bytes for.
        requests = {}
        for ads in (3, 2000):
            ids = [draw.randrange(STAMP_IDS) for _ in range(ads)]
            requests[ads] = ids, predict_request("stamp", stamp_inputs(ids), ())
        for _ in range(20):
            with grpc.insecure_channel(self.daemon.target,
                                       [("grpc.use_local_subchannel_pool", 1)]) as channel:
                predict = channel.unary_unary("/ulfd.v1.PredictionService/Predict",
                                              pb.PredictRequest.SerializeToString,
                                              pb.PredictResponse.FromString)
                for _ in range(BURSTS // 20):
                    calls = []
                    for _ in range(draw.choice([20, 60, 200])):
                        ids, request = requests[draw.choice([3, 3, 2000])]
                        calls.append((ids, predict.future(request, timeout=DEADLINE_S)))
                    for ids, call in calls:
                        scores = outputs_of(call.result())["score"].ravel().tolist()
                        self.assertEqual(stamp_of(ids, scores), STAMP)
                    time.sleep(draw.random() * 0.04)  # So that all threads wait.
