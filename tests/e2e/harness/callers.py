"""Callers that never rest, while models change.
SPDX-License-Identifier: Apache-2.0
"""
import concurrent.futures
import threading
import time

import grpc

from harness.clients import Client, outputs_of, predict_request
from harness.small import stamp_inputs


def together(work, threads):
    """[work(0), work(1), ...], each in a thread of its own; the first failure is raised."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))


class Callers:
    """Threads that call the model "stamp" all the time and tell by the scores which content
    answered."""

    def __init__(self, daemon, ids, content_of, threads, ordered=False):
        """content_of(ids, scores): which content it was, or None for a mixture.  ordered: a later
        call must not be answered by less."""
        self.daemon, self.ids, self.content_of, self.ordered = daemon, ids, content_of, ordered
        self.failures, self.calls, self.seconds = [], 0, []
        self.first = {}  # Content -> when it was first seen, in that order.
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self.run) for _ in range(threads)]

    def run(self):
        request = predict_request("stamp", stamp_inputs(self.ids), ())
        last = None
        with Client(self.daemon) as client:
            while not self.stop.is_set():
                begin = time.monotonic()
                bad = content = None
                try:
                    scores = outputs_of(client.predict(request))["score"].ravel().tolist()
                    content = self.content_of(self.ids, scores)
                    if content is None:
                        bad = f"mixed scores {scores}"
                    elif self.ordered and last is not None and content < last:
                        bad = f"{content} after {last}"
                    else:
                        last = content
                except grpc.RpcError as error:
                    bad = f"{error.code()} {error.details()}"
                now = time.monotonic()
                with self.lock:
                    self.calls += 1
                    self.seconds.append(now - begin)
                    if bad:
                        self.failures.append(bad)
                    else:
                        self.first.setdefault(content, now)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.stop.set()
        for thread in self.threads:
            thread.join()
