"""Canary versions for a share of the users, and shadow traffic.
SPDX-License-Identifier: Apache-2.0
"""
import os

from harness.clients import infer_outputs, infer_request, outputs_of, predict_request
from harness.daemon import FAST, wait_for
from harness.fixtures import CANARY_AND_SHADOW, DaemonTest, add_stamp, shop
from harness.metrics import scrape
from harness.modelfiles import write_version
from harness.small import stamp_inputs, stamp_of

IDS = [0, 3, 7]


class CanaryTest(DaemonTest):
    """Version 1 is stable; 3 in 10 users get version 2; version 3 shadows every call."""

    CONFIG = FAST + CANARY_AND_SHADOW

    @classmethod
    def fill(cls, repository):
        for version in (1, 2, 3):
            add_stamp(repository, version, version)

    def stamp(self, user=None, **spec):
        request = predict_request("stamp", stamp_inputs(IDS), ())
        for name, value in spec.items():
            setattr(request.model, name, value)
        metadata = [("x-user-id", user)] if user else []
        reply = self.client.Predict(request, timeout=20, metadata=metadata)
        stamp = stamp_of(IDS, outputs_of(reply)["score"].ravel().tolist())
        self.assertEqual(reply.model.version, stamp)
        return stamp

    def test_share_is_sticky_in_both_apis(self):
        users = [f"user-{i}" for i in range(400)]
        first = {user: self.stamp(user) for user in users}
        canaries = sum(stamp == 2 for stamp in first.values())
        self.assertLessEqual(set(first.values()), {1, 2})
        self.assertTrue(80 <= canaries <= 160, canaries)
        self.assertEqual({user: self.stamp(user) for user in users}, first)
        request = infer_request("stamp", stamp_inputs(IDS))
        for user in users[:50]:
            reply = self.client.ModelInfer(request, timeout=20, metadata=[("x-user-id", user)])
            stamp = stamp_of(IDS, infer_outputs(reply)["score"].ravel().tolist())
            self.assertEqual(stamp, first[user])

    def test_without_a_user_calls_are_spread(self):
        stamps = [self.stamp() for _ in range(300)]
        self.assertTrue(50 <= stamps.count(2) <= 130, stamps.count(2))
        self.assertEqual(stamps.count(1) + stamps.count(2), 300)

    def test_who_names_a_version_or_label_gets_it(self):
        for i in range(20):
            self.assertEqual(self.stamp(f"user-{i}", version=1), 1)
            self.assertEqual(self.stamp(f"user-{i}", label="stable"), 1)

    def test_shadow_scores_and_compares(self):
        def total(result):
            return scrape(self.daemon).sum("ulfd_shadow_requests_total", model="stamp",
                                           version="3", result=result)

        self.stamp(version=3)  # Its own calls are not scored again.
        before = scrape(self.daemon)
        begin = total("scored") + total("dropped")
        for _ in range(20):
            self.stamp(version=1)
        wait_for(lambda: total("scored") + total("dropped") >= begin + 20, "20 are scored")
        after = scrape(self.daemon)
        self.assertEqual(total("failed"), 0)

        def count(metrics, le):
            return metrics.sum("ulfd_shadow_score_difference_bucket", model="stamp", version="3",
                               le=le)

        # Stamps 1 and 3: scores are 2 * (id + 1) apart, so at least 2 and at most 10 or more.
        self.assertEqual(count(after, "1") - count(before, "1"), 0)
        self.assertGreater(count(after, "10"), count(before, "10"))


class FeatureOfNobodyTest(DaemonTest):
    """What tells users apart must be theirs."""

    CONFIG = FAST + "".join(
        f'models {{ name: "{name}" labels {{ key: "stable" value: 1 }} labels {{ key: "next" value: 2 }}\n'
        f'canary {{ label: "next" share: 0.5 sticky_feature: "{feature}" }} }}\n'
        for name, feature in (("stamp", "nope"), ("shop", "user")))

    @classmethod
    def fill(cls, repository):
        for version in (1, 2):
            add_stamp(repository, version, version)
            write_version(os.path.join(repository, "shop", str(version)), shop().files(True))

    def test_it_is_said(self):
        said = [line for line in self.daemon.log().splitlines() if "is no feature of the user" in line]
        self.assertEqual(len(said), 2)
        for line in said:
            self.assertIn("model=stamp", line)
