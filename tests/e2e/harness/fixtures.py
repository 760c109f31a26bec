"""Repositories of models that several tests serve.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import functools
import glob
import os
import unittest

import grpc
import numpy as np

from harness import env, modelfiles
from harness.clients import Client, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.metrics import scrape
from harness.shop import Shop
from harness.small import heavy_files, heavy_inputs, stamp_files, stamp_inputs

# Exports beside the repository: which of their inputs belong to the user.
SHARED_USERS = {
    "din": {"uid", "mid_list", "cat_list", "mask"},
    "tdm_dnn": {f"item_{i}" for i in range(1, 70)},
}


@functools.lru_cache(maxsize=None)
def shop():
    return Shop()


def add_shop(repository, stated=True):
    modelfiles.write_version(os.path.join(repository, "shop", "1"), shop().files(stated))


# Version 1 of "stamp" is stable; 3 in 10 users get version 2; version 3 shadows every call.
CANARY_AND_SHADOW = """
models {
  name: "stamp"
  version_policy { specific { versions: 1 versions: 2 versions: 3 } }
  labels { key: "stable" value: 1 }
  labels { key: "canary" value: 2 }
  labels { key: "next" value: 3 }
  canary { label: "canary" share: 0.3 sticky_metadata: "x-user-id" }
  shadow { label: "next" share: 1 max_queued: 64 }
}
"""


def add_stamp(repository, stamp, version=1, name="stamp"):
    modelfiles.write_version(os.path.join(repository, name, str(version)), stamp_files(stamp))


def add_heavy(repository):
    modelfiles.write_version(os.path.join(repository, "heavy", "1"), heavy_files())


def add_shared(repository, name):
    """Links the export itself, unmodified."""
    os.makedirs(os.path.join(repository, name))
    os.symlink(os.path.join(env.shared_model(name), "1"), os.path.join(repository, name, "1"))


def shared_cases(name):
    """[(case, inputs, expected)], and the tolerance."""
    folder = os.path.join(env.shared_model(name), "cases")
    with open(os.path.join(folder, "tolerance"), encoding="utf-8") as file:
        tolerance = float(file.read())
    cases = []
    for path in sorted(glob.glob(os.path.join(folder, "*.in.npz"))):
        case = os.path.basename(path)[:-len(".in.npz")]
        with np.load(path) as inputs, np.load(path.replace(".in.", ".expected.")) as expected:
            cases.append((case, dict(inputs), dict(expected)))
    return cases, tolerance


class DaemonTest(unittest.TestCase):
    """One daemon per class; its end must be an orderly one, whatever the tests did to it."""

    CONFIG = FAST
    FLAGS = ()
    WAIT_READY = True
    ENVIRONMENT = None

    @classmethod
    def fill(cls, repository):
        raise NotImplementedError

    @classmethod
    def setUpClass(cls):
        cls.repository = os.path.join(env.scratch(cls.__name__), "models")
        os.makedirs(cls.repository)
        cls.fill(cls.repository)
        cls.daemon = Daemon(cls.repository, config=cls.CONFIG, flags=cls.FLAGS,
                            wait_ready=cls.WAIT_READY, name=cls.__name__,
                            environment=cls.ENVIRONMENT)
        cls.client = Client(cls.daemon)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.daemon.stop()

    def idle(self):
        """Waits until no call is under way."""
        wait_for(lambda: scrape(self.daemon).sum("ulfd_inflight_requests") == 0,
                 "no call is left", 30)

    @contextlib.contextmanager
    def assert_refused(self, code, *texts):
        """What is called inside ends with that code, and with an error that has all texts."""
        with self.assertRaises(grpc.RpcError) as caught:
            yield
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        for text in texts:
            self.assertIn(text, caught.exception.details())

    def assert_close(self, found, expected, tolerance, text=""):
        self.assertEqual(found.shape, expected.shape, text)
        worst = np.max(np.abs(found - expected)) if expected.size else 0
        self.assertTrue(worst <= tolerance, f"{text}: {worst} apart, want at most {tolerance}")


class BusyTest(DaemonTest):
    """A daemon with a model of long calls and one of short calls; each test begins without calls."""

    @classmethod
    def fill(cls, repository):
        add_heavy(repository)
        add_stamp(repository, 1)

    def setUp(self):
        self.heavy = predict_request("heavy", heavy_inputs(), ())
        self.stamp = predict_request("stamp", stamp_inputs([1]), ())
        self.idle()

    def occupy(self, calls=1, metadata=None):
        """Starts so many long calls; returns when the daemon has them."""
        futures = [self.client.Predict.future(self.heavy, timeout=60, metadata=metadata)
                   for _ in range(calls)]
        wait_for(lambda: scrape(self.daemon).sum("ulfd_inflight_requests") >= calls or
                 any(f.done() for f in futures), "the calls are there", step=0.001)
        return futures
