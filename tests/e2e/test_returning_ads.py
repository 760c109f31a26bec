"""Ads that come again, for other users: the cache of what was computed of them.
SPDX-License-Identifier: Apache-2.0
"""
import os

import numpy as np

from harness.callers import together
from harness.clients import Client, outputs_of, predict_request
from harness.fixtures import DaemonTest
from harness.metrics import scrape
from harness.modelfiles import write_version

TOLERANCE = 1e-6
COLUMNS, TOWER = 200, 6


def files():
    """A tower of the ad, whose first and last layer meet the user: dearer to compute than to read."""
    layers = ['layer_params { type: "input_layer" top: "u" top: "a" }']
    for i in range(TOWER):
        bottom = f"s{i - 1}" if i else "a"
        layers.append(f'layer_params {{ name: "s{i}" type: "softmax_layer" bottom: "{bottom}" top: "s{i}" }}')
    layers.append(f'layer_params {{ name: "sum" type: "add_layer" bottom: "s0" bottom: "s{TOWER - 1}" top: "sum" }}')
    layers.append('layer_params { name: "y" type: "multiply_layer" bottom: "u" bottom: "sum" top: "y" }')
    inputs = "".join(f'inputs {{ name: "{name}" level: INPUT_LEVEL_{level} row_shape: [{COLUMNS}] }}\n'
                     for name, level in (("u", "USER"), ("a", "AD")))
    return {"graph_ulf.txt": "\n".join(layers), "model.textproto": inputs + "ad_cache_bytes: 4000000\n"}


def scores(user, ads):
    tower = ads.astype(np.float64)
    first = None
    for _ in range(TOWER):
        tower = np.exp(tower - tower.max(axis=1, keepdims=True))
        tower /= tower.sum(axis=1, keepdims=True)
        first = tower if first is None else first
    return user * (first + tower)


def features(ids):
    """Of numbered ads: the same number, the same ad."""
    return np.stack([np.random.default_rng(number).normal(size=COLUMNS) for number in ids]).astype(np.float32)


class ReturningAdsTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "towers", "1"), files())

    def check(self, client, ids, seed):
        ads = features(ids)
        user = np.random.default_rng(seed).normal(size=(1, COLUMNS)).astype(np.float32)
        reply = client.predict(predict_request("towers", {"u": user, "a": ads}, {"u"}))
        self.assert_close(outputs_of(reply)["y"], scores(user, ads), TOLERANCE, "y")

    def counts(self):
        page = scrape(self.daemon)
        return {result: page.sum("ulfd_ad_cache_ads_total", model="towers", result=result)
                for result in ("hit", "miss")}

    def test_known_new_and_doubled_ads_of_many_users(self):
        before = self.counts()
        for user in range(20):
            self.check(self.client, [user, user + 1, 10**6 + user, user, 10**6 + user], seed=user)
        after = self.counts()
        # Of each request but the first, which may be run step by step for a trace, three ads are new
        # or the same new one, and two are known.
        self.assertGreaterEqual(after["hit"] - before["hit"], 18 * 2)
        self.assertLessEqual(after["miss"] - before["miss"], 5 + 19 * 3)
        self.assertGreater(scrape(self.daemon).sum("ulfd_ad_cache_bytes", model="towers"), 0)
        self.assertGreater(scrape(self.daemon).sum("ulfd_cache_saved_flops_total", model="towers",
                                                   cache="ad"), 0)
        self.assertLessEqual(scrape(self.daemon).sum("ulfd_ad_cache_bytes", model="towers"), 4000000)

    def test_side_by_side(self):
        """Calls that are merged, with ads that others bring at the same time."""
        def call(worker):
            with Client(self.daemon) as client:
                for i in range(40):
                    ids = np.random.default_rng(1000 * worker + i).integers(0, 50, size=1 + 7 * (i % 4))
                    self.check(client, ids, seed=worker)

        together(call, 8)
