"""Caches of users and ads under constant calls while tables and versions change: every answer is of
one content, and none of an older one than the caller has seen.  ULFD_CACHED=CHANGES makes it longer
(tests/e2e/README.md).
SPDX-License-Identifier: Apache-2.0
"""
import os
import random
import threading

import grpc
import numpy as np

from harness import env
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import FAST, wait_for
from harness.fixtures import DaemonTest
from harness.loading import ulf
from harness.metrics import scrape
from harness.modelfiles import (embedding_conf, layer, npz_bytes, sparse_inputs, table_text,
                                write_version)

CHANGES = int(os.environ.get("ULFD_CACHED", "24"))
EPOCHS_A_VERSION = 8  # The next change is a version with tables of its own.
COLUMNS, LAYERS = 256, 4
USERS, ADS = 6, 16
USER_FACTOR = 16
NO_BIAS = "inner_product_param { bias_term: false }"


def table(content, ids):
    """Rows that say which content they are of, exactly in float32 up to 240 changes."""
    return {i: [content + i / ADS] * COLUMNS for i in ids}


def tower(side):
    """Layers that change nothing and take long: what they compute is worth keeping."""
    text, top = "", side
    for i in range(LAYERS):
        text += layer("inner_product_layer", f"{side}_fc{i}", [top], [f"{side}_fc{i}"], ["w"],
                      NO_BIAS)
        text += layer("relu_layer", f"{side}_relu{i}", [f"{side}_fc{i}"], [f"{side}{i}"])
        top = f"{side}{i}"
    return text, top


def files(content):
    graph = 'backend: "mxnet"\n' + layer("input_layer", "", [], sparse_inputs("user", "ad"))
    tops = []
    for side, level in (("user", 1), ("ad", 0)):
        graph += layer("embedding_layer", f"{side}_e", sparse_inputs(side), [side],
                       param=f'embedding_param {{ embedding_conf_path: "{side}.conf" '
                             f"level: {level} }}")
        text, top = tower(side)
        graph += text
        tops.append(top)
    graph += layer("fuse_layer", "both", tops, ["both"],
                   param="fuse_param { common_input_index: 0 }")
    graph += layer("inner_product_layer", "score", ["both"], ["score"], ["sum"], NO_BIAS)
    weight = np.repeat([[USER_FACTOR / COLUMNS], [1 / COLUMNS]], COLUMNS, axis=0)
    made = {"graph_ulf.txt": graph, "sparse.txt": "users,ads\n",
            "dense.npz": npz_bytes({"w": np.eye(COLUMNS, dtype=np.float32),
                                    "sum": weight.astype(np.float32)}),
            "users": table_text(table(content, range(USERS))),
            "ads": table_text(table(content, range(ADS))),
            "model.textproto": "user_cache_bytes: 8000000\nad_cache_bytes: 8000000\n"}
    for side in ("user", "ad"):
        made[f"{side}.conf"] = embedding_conf({side: (f"{side}s", COLUMNS)},
                                              [[(side, "udf_type: 0")]])
    return made


def content_of(user, ads, scores):
    """The one content that explains every score, or None."""
    found = set()
    for ad, score in zip(ads, scores):
        # USER_FACTOR * (content + user / ADS) + content + ad / ADS
        content = (score - USER_FACTOR * user / ADS - ad / ADS) / (USER_FACTOR + 1)
        found.add(float(content))
    return found.pop() if len(found) == 1 else None


def request_of(user, ads, keyed):
    arrays = {}
    for name, ids in (("user", [user]), ("ad", ads)):
        arrays[f"{name}.ids"] = np.array(ids, np.int64)
        arrays[f"{name}.values"] = np.ones(len(ids), np.float32)
        arrays[f"{name}.segments"] = np.ones(len(ids), np.int32)
    request = predict_request("cached", arrays, {"user"})
    if keyed:
        request.user_key, request.user_version = b"u%d" % user, 1
    return request


class CachedAnswersTest(DaemonTest):
    CONFIG = FAST

    @classmethod
    def fill(cls, repository):
        cls.folder = env.scratch("cached_answers")
        write_version(os.path.join(repository, "cached", "1"), files(0))

    def call(self, seed):
        """Until told to stop.  A caller that has seen a content sees none before it."""
        source, last = random.Random(seed), -1.0
        with Client(self.daemon) as client:
            while not self.stop.is_set():
                user = source.randrange(USERS)
                ads = source.choices(range(ADS), k=source.choice((1, 5, 40)))
                try:
                    reply = client.predict(request_of(user, ads, keyed=source.random() < 0.5))
                except grpc.RpcError as error:
                    self.failures.append(f"{error.code()} {error.details()}")
                    continue
                scores = outputs_of(reply)["score"].ravel().tolist()
                content = content_of(user, ads, scores)
                if content is None or content < last or content != int(content):
                    self.failures.append(f"{content} after {last}: user {user}, ads {ads}: "
                                         f"{scores}")
                else:
                    last = content
                    self.seen.add(content)
                self.calls += 1

    def change(self, content):
        version, epoch = content // EPOCHS_A_VERSION + 1, content % EPOCHS_A_VERSION
        path = os.path.join(self.repository, "cached", str(version))
        if epoch == 0:
            write_version(path, files(content))
            return
        parts = []
        for name, ids in (("users", range(USERS)), ("ads", range(ADS))):
            rows = table(content, ids)
            npz = os.path.join(self.folder, f"{name}.npz")
            np.savez(npz, keys=np.array(list(rows), np.int64),
                     rows=np.array(list(rows.values()), np.float32))
            parts.append(f"put:{name}={npz}")
        code, out, err = ulf("table", "push", path, f"--epoch={epoch}", *parts)
        self.assertEqual(code, 0, out + err)

    def test_no_answer_is_older_than_one_before_or_of_two_contents(self):
        self.stop, self.failures, self.seen, self.calls = threading.Event(), [], set(), 0
        callers = [threading.Thread(target=self.call, args=(seed,)) for seed in range(3)]
        for caller in callers:
            caller.start()
        try:
            for content in range(1, CHANGES + 1):
                self.change(content)
                wait_for(lambda: self.failures or content in self.seen,
                         f"content {content}; log:\n{self.daemon.log()[-2000:]}", 60)
                self.assertEqual(self.failures[:3], [])
            for cache in ("user_cache_users", "ad_cache_ads"):
                wait_for(lambda: scrape(self.daemon).sum(f"ulfd_{cache}_total", model="cached",
                                                         result="hit") > 0, f"hits of {cache}")
        finally:
            self.stop.set()
            for caller in callers:
                caller.join()
        print(f"\n{CHANGES} changes: {self.calls} calls, {len(self.failures)} failed")
        self.assertEqual(self.failures[:3], [])
