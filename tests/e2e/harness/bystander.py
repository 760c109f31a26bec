"""A client that behaves, beside those that do not: it must not notice them.
SPDX-License-Identifier: Apache-2.0
"""
import statistics
import threading
import time

import grpc

from harness import env
from harness.clients import Client


class Bystander:
    """Calls one after the other from a thread of its own, on a connection of its own."""

    # Other work on a small machine makes single calls late; the middle of many is not.
    FLOOR_S = 0.1
    # A middle alone would not see one call that waits for all of what others do.
    LONGEST_S = 5

    def __init__(self, daemon, request):
        self.client = Client(daemon)
        self.request = request
        self._times, self._failures = [], []
        self._stop = threading.Event()
        for _ in range(30):
            self._call()
        self.alone = statistics.median(self._times)
        self._times.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _call(self):
        begin = time.monotonic()
        try:
            self.client.predict(self.request, timeout=20 * env.SLOWNESS)
        except grpc.RpcError as error:
            self._failures.append((error.code(), error.details()))
        self._times.append(time.monotonic() - begin)

    def _run(self):
        while not self._stop.is_set():
            self._call()
            time.sleep(0.002)

    def check(self, test, calls=20, allowed=()):
        """At least so many calls since the last check; none failed but with a code that is allowed,
        the middle one was not late, and none as late as if it had waited for somebody else's trouble to end."""
        until = time.monotonic() + 30 * env.SLOWNESS
        while len(self._times) < calls and time.monotonic() < until:
            time.sleep(0.01)
        times = list(self._times)
        del self._times[:len(times)]
        failures, self._failures = self._failures, []
        test.assertEqual([f for f in failures if f[0] not in allowed], [])
        test.assertGreaterEqual(len(times), calls)
        test.assertLess(statistics.median(times),
                        max(5 * self.alone, self.FLOOR_S * env.SLOWNESS))
        test.assertLess(max(times), self.LONGEST_S * env.SLOWNESS)

    def stop(self):
        self._stop.set()
        self._thread.join()
        self.client.close()
