"""Users who come back with other ads: user_key, and the cache of what was computed of them.
SPDX-License-Identifier: Apache-2.0
"""
import math
import os
import time

import grpc
import numpy as np

from harness.admin import ON_REQUEST, AdminDaemonTest
from harness.callers import together
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import FAST, DaemonTest, add_stamp, shop
from harness.metrics import scrape
from harness.modelfiles import layer, write_version
from harness.shop import USER
from harness.small import stamp_inputs, stamp_of
from harness import env

TOLERANCE = 1e-5
INVALID, PRECONDITION = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


def cached_shop():
    files = dict(shop().files(True))
    files["model.textproto"] = files.get("model.textproto", "") + "\nuser_cache_bytes: 1000000\n"
    return files


def page_of(user, ads, seed):
    """The user of one request with other ads, and the scores."""
    arrays = shop().inputs(ads, seed=seed)
    for name, array in shop().inputs(1, seed=user).items():
        if name.split(".")[0] in USER:
            arrays[name] = array
    return arrays, shop().scores(arrays)


def keyed(request, key, version=1, whole=True):
    request.user_key, request.user_version = key, version
    if not whole:
        del request.user_features[:]
    return request


class ReturningUsersTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "shop", "1"), cached_shop())

    def check(self, reply, arrays, expected):
        for name, values in expected.items():
            self.assert_close(outputs_of(reply)[name], values, TOLERANCE, name)
        self.assertEqual(reply.missing_ids, sum(shop().missing_ids(arrays).values()))

    def refuse(self, request, code, *texts):
        with self.assert_refused(code, *texts):
            self.client.predict(request)

    def test_pages_of_many_users(self):
        before = scrape(self.daemon)
        for page in range(4):
            for user in range(10):
                arrays, expected = page_of(user, 1 + 30 * page, seed=100 * user + page)
                reply = self.client.predict(predict_request("shop", arrays, USER))
                self.check(reply, arrays, expected)
        after = scrape(self.daemon)
        # A version that another test replaced may be unloaded meanwhile.
        where = {"model": "shop", "version": str(reply.model.version)}
        found = {result: after.sum("ulfd_user_cache_users_total", result=result, **where)
                 - before.sum("ulfd_user_cache_users_total", result=result, **where)
                 for result in ("hit", "miss")}
        self.assertLessEqual(found["miss"], 10)
        self.assertGreaterEqual(found["hit"], 30)
        self.assertGreater(after.sum("ulfd_user_cache_bytes", model="shop"), 0)
        self.assertGreater(after.sum("ulfd_cache_saved_flops_total", model="shop", cache="user"), 0)

    def test_side_by_side(self):
        """Calls that are merged hold known and new users."""
        def call(worker):
            with Client(self.daemon) as client:
                for i in range(60):
                    arrays, expected = page_of((worker + i) % 12, 1 + i % 3, seed=1000 * worker + i)
                    reply = client.predict(predict_request("shop", arrays, USER))
                    self.check(reply, arrays, expected)

        together(call, 8)

    def test_keys_alone(self):
        arrays, expected = page_of(1, 20, seed=1)
        whole = keyed(predict_request("shop", arrays, USER), "anna")
        self.check(self.client.predict(whole), arrays, expected)
        saved = scrape(self.daemon).sum("ulfd_kept_users_saved_bytes_total")
        for page in range(2, 5):
            arrays, expected = page_of(1, 20, seed=page)
            request = keyed(predict_request("shop", arrays, USER), "anna", whole=False)
            self.check(self.client.predict(request), arrays, expected)
        self.assertGreater(scrape(self.daemon).sum("ulfd_kept_users_total", result="hit"), 0)
        self.assertGreater(scrape(self.daemon).sum("ulfd_kept_users_bytes"), 0)
        saved = scrape(self.daemon).sum("ulfd_kept_users_saved_bytes_total") - saved
        self.assertEqual(saved, 3 * sum(feature.ByteSize() for feature in whole.user_features))

    def test_a_new_version_of_the_user(self):
        for version in (1, 2):
            arrays, _ = page_of(version, 5, seed=7)
            self.client.predict(keyed(predict_request("shop", arrays, USER), "carl", version))
        for version in (1, 2):
            arrays, expected = page_of(version, 5, seed=8)
            request = keyed(predict_request("shop", arrays, USER), "carl", version, whole=False)
            self.check(self.client.predict(request), arrays, expected)

    def test_what_is_not_here(self):
        arrays, expected = page_of(3, 5, seed=3)
        request = keyed(predict_request("shop", arrays, USER), "nobody", 7, whole=False)
        self.refuse(request, PRECONDITION, 'user_key "nobody" version 7', "send user_features again")
        whole = keyed(predict_request("shop", arrays, USER), "nobody", 7)
        self.check(self.client.predict(whole), arrays, expected)
        self.check(self.client.predict(request), arrays, expected)

    def test_what_is_refused_leaves_nothing_behind(self):
        arrays, expected = page_of(7, 3, seed=7)
        whole = keyed(predict_request("shop", arrays, USER), "r")
        partial = keyed(predict_request("shop", arrays, USER), "r")
        del partial.user_features[0]
        alone = keyed(predict_request("shop", arrays, USER), "r", whole=False)
        self.refuse(partial, INVALID, "missing")
        self.refuse(alone, PRECONDITION, "its features are not here")
        self.check(self.client.predict(whole), arrays, expected)
        self.refuse(partial, INVALID, "missing")
        self.check(self.client.predict(alone), arrays, expected)

    def test_bad_keys(self):
        arrays, _ = page_of(3, 5, seed=3)
        self.refuse(keyed(predict_request("shop", arrays, USER), "k", 0), INVALID,
                    "user_key without a user_version")
        self.refuse(keyed(predict_request("shop", arrays, USER), "", 1), INVALID,
                    "user_version 1 without a user_key")
        self.refuse(keyed(predict_request("shop", arrays, USER), "k" * 129, 1), INVALID,
                    "user_key has 129 bytes, want at most 128")

    def test_keys_stay_over_a_reload(self):
        """They are about the user, not about the model's content."""
        arrays, expected = page_of(5, 5, seed=5)
        self.client.predict(keyed(predict_request("shop", arrays, USER), "eve"))
        write_version(os.path.join(self.repository, "shop", "2"), cached_shop())
        until = time.monotonic() + 60
        while time.monotonic() < until:
            request = keyed(predict_request("shop", arrays, USER), "eve", whole=False)
            reply = self.client.predict(request)
            self.check(reply, arrays, expected)
            if reply.model.version == 2:
                return
            time.sleep(0.05)
        self.fail("version 2 is not published")


class CountsTest(AdminDaemonTest):
    CONFIG = ON_REQUEST + 'admin_address: "unix:admin.sock"\n'

    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "shop", "1"), cached_shop())

    def test_counts_go_on_over_other_content_of_a_version(self):
        def page():
            metrics = scrape(self.daemon)
            return {(name, labels): metrics.sum(name, model="shop", **dict(labels)) for name, labels in (
                ("ulfd_user_cache_users_total", (("result", "hit"),)),
                ("ulfd_user_cache_users_total", (("result", "miss"),)),
                ("ulfd_cache_saved_flops_total", (("cache", "user"),)))}

        def call():
            arrays, _ = page_of(1, 5, seed=1)
            self.client.predict(predict_request("shop", arrays, USER))

        self.admin.call("LoadModel", name="shop", version=1)
        for _ in range(3):
            call()
        before = page()
        files = cached_shop()
        files["model.textproto"] += "# The same in other words.\n"
        write_version(os.path.join(self.repository, "shop", "1"), files)
        self.admin.call("LoadModel", name="shop", version=1)
        self.assertEqual(page(), before)
        call()
        after = page()
        grown = [after[series] - before[series] for series in before]
        self.assertEqual(grown, [0, 1, 0])
        self.assertEqual(after, page())


STEPS, WIDTH = 50, 64


def history_files():
    """A user of 50 steps of 64 numbers, summed over the steps and multiplied by the ad's number."""
    layers = ['layer_params { type: "input_layer" top: "steps" top: "ad" }',
              'layer_params { name: "sum" type: "sum_layer" bottom: "steps" top: "sum" }',
              'layer_params { name: "y" type: "multiply_layer" bottom: "sum" bottom: "ad" top: "y" }']
    return {"graph_ulf.txt": "\n".join(layers), "model.textproto":
            f'inputs {{ name: "steps" level: INPUT_LEVEL_USER row_shape: [{STEPS}, {WIDTH}] }}\n'
            'inputs { name: "ad" level: INPUT_LEVEL_AD row_shape: [1] }\nuser_cache_bytes: 1000000\n'}


class BytesOfKeysTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "history", "1"), history_files())
        add_stamp(repository, 7)

    def test_a_key_is_a_twentieth_of_the_bytes(self):
        random = np.random.default_rng(1)  # Whole numbers: their sums are exact.
        steps = random.integers(-8, 8, size=(1, STEPS, WIDTH)).astype(np.float32)
        sent = []
        for page in range(5):
            ads = random.integers(-8, 8, size=(50, 1)).astype(np.float32)
            request = keyed(predict_request("history", {"steps": steps, "ad": ads}, {"steps"}), "u", whole=page == 0)
            sent.append(request.ByteSize())
            self.assert_close(outputs_of(self.client.predict(request))["y"], steps.sum(axis=1) * ads, TOLERANCE, "y")
        self.assertLessEqual(max(sent[1:]), sent[0] / 20, sent)

    def test_a_model_without_user_features_needs_none(self):
        arrays = stamp_inputs([1, 2, 3])
        reply = self.client.predict(keyed(predict_request("stamp", arrays, set()), "u", whole=False))
        self.assertEqual(stamp_of([1, 2, 3], outputs_of(reply)["score"]), 7)

    def test_an_unknown_model_is_what_is_wrong(self):
        request = keyed(predict_request("nobody", stamp_inputs([1]), set()), "u", whole=False)
        with self.assert_refused(grpc.StatusCode.NOT_FOUND, "nobody"):
            self.client.predict(request)


def product_files(users):
    """The ad's number times those of the user, which are inputs of these names."""
    layers = layer("input_layer", "", [], ["ad", *users])
    for place, name in enumerate(users):
        layers += layer("multiply_layer", f"times_{name}", [f"times_{users[place - 1]}" if place else "ad", name],
                        [f"times_{name}"])
    inputs = [f'inputs {{ name: "{name}" level: INPUT_LEVEL_USER row_shape: [1] }}\n' for name in users]
    return {"graph_ulf.txt": layers, "model.textproto":
            "".join(inputs) + 'inputs { name: "ad" level: INPUT_LEVEL_AD row_shape: [1] }\n'}


class OtherFeaturesTest(DaemonTest):
    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "product", "1"), product_files(["u", "v"]))

    def ask(self, values, whole=True):
        arrays = {name: np.array([[value]], np.float32) for name, value in values.items()}
        arrays["ad"] = np.array([[1], [2]], np.float32)
        request = keyed(predict_request("product", arrays, set(values)), "k", whole=whole)
        reply = self.client.predict(request)
        return [values.ravel().tolist() for values in outputs_of(reply).values()]

    def test_those_of_the_version_before_are_asked_for_again(self):
        """A new version wants one feature more, and the next one less."""
        values = {}
        for version, names in ((1, ["u", "v"]), (2, ["u", "v", "w"]), (3, ["u"])):
            with self.subTest(version=version):
                if version > 1:
                    write_version(os.path.join(self.repository, "product", str(version)), product_files(names))
                wait_for(lambda: scrape(self.daemon).sum(
                    "ulfd_model_info", model="product", version=str(version)), f"version {version} serves")
                if version > 1:
                    with self.assert_refused(PRECONDITION, "send user_features again"):
                        self.ask(values, whole=False)
                values = {name: place + 2 for place, name in enumerate(names)}
                product = math.prod(values.values())
                for whole in (True, False):
                    self.assertEqual(self.ask(values, whole), [[product, 2 * product]])


class KeysOfClientsTest(DaemonTest):
    """A key of one client never answers another."""
    TOKENS = {"shop": "s3cret-token-of-the-shop", "lab": "s3cret-token-of-the-lab"}

    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "shop", "1"), cached_shop())
        path = os.path.join(env.scratch("tokens"), "tokens")
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(f"{name} {token}\n" for name, token in cls.TOKENS.items()))
        cls.CONFIG = FAST + f'authentication {{ token_file: "{path}" }}\n'

    def predict(self, client, request):
        return self.client.Predict(request, timeout=30, metadata=[
            ("authorization", f"Bearer {self.TOKENS[client]}")])

    def test_each_has_its_own(self):
        arrays, expected = page_of(1, 5, seed=1)
        self.predict("shop", keyed(predict_request("shop", arrays, USER), "k"))
        alone = keyed(predict_request("shop", arrays, USER), "k", whole=False)
        with self.assert_refused(PRECONDITION):
            self.predict("lab", alone)
        for name, values in expected.items():
            self.assert_close(outputs_of(self.predict("shop", alone))[name], values, TOLERANCE)


class SwitchedOffTest(DaemonTest):
    CONFIG = FAST + "limits { kept_users_bytes: 0 }\n"

    @classmethod
    def fill(cls, repository):
        write_version(os.path.join(repository, "shop", "1"), shop().files(True))

    def test_it_says_so(self):
        arrays, _ = page_of(1, 5, seed=1)
        self.client.predict(keyed(predict_request("shop", arrays, USER), "k"))
        with self.assert_refused(PRECONDITION, "limits.kept_users_bytes is 0"):
            self.client.predict(keyed(predict_request("shop", arrays, USER), "k", whole=False))
