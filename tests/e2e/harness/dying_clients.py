"""Clients to be killed with calls under way.
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess
import sys

from harness import env

_PROGRAM = """
import sys
import grpc
call = grpc.insecure_channel(sys.argv[1]).unary_unary("/ulfd.v1.PredictionService/Predict")
message = open(sys.argv[2], "rb").read()
while True:
    for future in [call.future(message, timeout=30) for _ in range(8)]:
        future.exception()
"""


class DyingClients:
    """Start processes that call Predict with `request`, eight calls at a time, until they end."""

    def __init__(self, daemon, request):
        self.target = daemon.target
        self.path = os.path.join(env.scratch("dying_clients"), "request")
        with open(self.path, "wb") as file:
            file.write(request.SerializeToString())

    def start(self):
        return subprocess.Popen([sys.executable, "-c", _PROGRAM, self.target, self.path])
