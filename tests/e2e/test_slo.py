"""The checks of deploy/slo-check run and judge: those that do not depend on how fast the machine is.
SPDX-License-Identifier: Apache-2.0
"""
import unittest

from harness import env
from slo.bench import Bench
from slo.checks import memory, overload, reload, sigterm


@unittest.skipIf(env.SANITIZED, "figures of instrumented code mean nothing")
class SloCheckTest(unittest.TestCase):
    def rows(self, check):
        bench = Bench(0.1, capacity=20)  # A third of it fits any machine.
        return {promise: (figure, kept) for promise, figure, kept in check(bench)}

    def test_sigterm(self):
        for promise, (figure, kept) in self.rows(sigterm).items():
            self.assertTrue(kept, f"{promise}: {figure}")

    def check_that_no_call_fails(self, rows):
        for promise, (figure, kept) in rows.items():
            if promise.startswith("no call"):
                self.assertTrue(kept, f"{promise}: {figure}")

    def test_reload(self):
        rows = self.rows(reload)
        self.assertEqual(len(rows), 4)
        self.check_that_no_call_fails(rows)
        for promise, (figure, _) in rows.items():
            if not promise.startswith("no call"):
                self.assertIn("4 pairs", figure)

    def test_many_reloads(self):
        rows = self.rows(memory)
        self.assertEqual(len(rows), 2)
        self.check_that_no_call_fails(rows)

    def test_overload(self):
        rows = self.rows(overload)
        self.assertEqual(len(rows), 4)
        figure, kept = rows["nobody is refused without a reason"]
        self.assertTrue(kept, figure)
        self.assertIn("RESOURCE_EXHAUSTED", figure)


if __name__ == "__main__":
    unittest.main()
