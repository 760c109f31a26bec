"""Finds the tests of this folder, runs them, and closes with "N passed, M failed, K skipped".
SPDX-License-Identifier: Apache-2.0
"""
import os
import sys
import time
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import env  # noqa: E402


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


class Result(unittest.TextTestResult):
    """Prints how long each test took, so that a slow one is seen."""

    passed = 0

    def startTest(self, test):
        self.begin = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test):
        self.passed += 1
        self.stream.write(f"{time.monotonic() - self.begin:5.1f} s ")
        super().addSuccess(test)

    # Why, at once: the end of the output may be cut off.
    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(self.errors[-1][1])

    def getDescription(self, test):
        return test.id()


def main():
    env.set_bin_dir(sys.argv[1])
    wanted = sys.argv[2:]
    # A folder of its own, so that several runs go side by side; paths of sockets in it are short.
    name = "+".join(wanted) or "all"
    if len(name) > 40:
        name = f"{name[:30]}~{zlib.crc32(name.encode()):08x}"
    env.prepare(os.path.join(env.WORK, name))
    loader = unittest.TestLoader()
    found = loader.discover(os.path.dirname(os.path.abspath(__file__)), pattern="test_*.py")
    tests = [t for t in flatten(found) if not wanted or any(name in t.id() for name in wanted)]
    if not tests:
        print(f"no test matches {wanted}", file=sys.stderr)
        return 1
    begin = time.monotonic()
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result)
    result = runner.run(unittest.TestSuite(tests))
    # A failed sub-test counts as a failure of its own; a failed setUpClass, too.
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(f"in {time.monotonic() - begin:.0f} s")
    print(f"{result.passed} passed, {failed} failed, {len(result.skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
