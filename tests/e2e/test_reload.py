"""Models change while calls go on: no call fails, and every reply comes from one content.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil

import grpc

from harness import env, modelfiles
from harness.callers import Callers
from harness.clients import native_pb, outputs_of, predict_request
from harness.daemon import wait_for
from harness.fixtures import DaemonTest, add_shop, add_stamp, shop
from harness.metrics import scrape
from harness.shop import USER
from harness.small import stamp_files, stamp_graph, stamp_inputs, stamp_of

IDS = [0, 3, 7, 11, 49]


class ReloadTest(DaemonTest):
    """Every test starts with one version of "stamp", 1, served."""

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)
        add_shop(repository)
        cls.target = os.path.join(repository, "stamp", "1")
        cls.aside = env.scratch("aside")
        cls.stamp = 1

    @classmethod
    def next_stamp(cls):
        ReloadTest.stamp += 1
        return ReloadTest.stamp

    def setUp(self):
        shutil.rmtree(os.path.join(os.path.dirname(self.target), "2"), ignore_errors=True)
        self.put_back()

    def served(self):
        reply = self.client.predict(predict_request("stamp", stamp_inputs(IDS), ()))
        return stamp_of(IDS, outputs_of(reply)["score"].ravel().tolist())

    def put_aside(self, stamp, success=True, **files):
        path = os.path.join(self.aside, f"{stamp}")
        modelfiles.write_version(path, {**stamp_files(stamp), **files}, success)
        return path

    def wait_served(self, stamp, callers=None):
        """By the callers, too."""
        def arrived():
            if callers and callers.failures:
                raise AssertionError(callers.failures[:3])
            return self.served() == stamp and (not callers or stamp in callers.first)

        wait_for(arrived, f"stamp {stamp} is served; log:\n" + self.daemon.log()[-2000:], 20)

    def put_back(self):
        stamp = self.next_stamp()
        modelfiles.replace(self.put_aside(stamp), self.target)
        self.wait_served(stamp)

    def test_200_replacements_under_calls(self):
        with Callers(self.daemon, IDS, stamp_of, threads=4) as callers:
            for i in range(200):
                stamp = self.next_stamp()
                new = self.put_aside(stamp)
                if i % 2 == 0:
                    modelfiles.replace(new, self.target)
                else:  # As `mv` does it: for a moment there is no such directory.
                    old = os.path.join(self.aside, "old")
                    os.rename(self.target, old)
                    os.rename(new, self.target)
                    shutil.rmtree(old)
                self.wait_served(stamp, callers)
        self.assertEqual(callers.failures, [])
        self.assertGreater(callers.calls, 400)
        print(f"[200 replacements, {callers.calls} calls, 0 failed] ", end="", flush=True)

    def test_rewriting_files_in_place(self):
        """Without _SUCCESS: what is half written is never loaded, because it still changes."""
        os.remove(os.path.join(self.target, "_SUCCESS"))
        with Callers(self.daemon, IDS, stamp_of, threads=4) as callers:
            for _ in range(4):
                stamp = self.next_stamp()
                for name, content in stamp_files(stamp).items():
                    path = os.path.join(self.target, name)
                    with open(path, "r+b") as file:
                        file.truncate(0)
                        for begin in range(0, len(content), max(1, len(content) // 3)):
                            file.write(content[begin:begin + max(1, len(content) // 3)].encode())
                            file.flush()
                            callers.stop.wait(0.02)
                self.wait_served(stamp, callers)
        self.assertEqual(callers.failures, [])

    def test_rewriting_between_markers(self):
        """_SUCCESS goes first and comes back last."""
        marker = os.path.join(self.target, "_SUCCESS")
        with Callers(self.daemon, IDS, stamp_of, threads=4) as callers:
            for _ in range(3):
                stamp = self.next_stamp()
                os.remove(marker)
                modelfiles.write_version(self.target, stamp_files(stamp), success=False)
                modelfiles.write(marker, b"")
                self.wait_served(stamp, callers)
        self.assertEqual(callers.failures, [])

    def wait_failed(self, text):
        def failed():
            status = self.client.version("stamp", 1)
            wanted = status.state == native_pb.VERSION_STATE_FAILED and text in status.error
            return status if wanted else None

        return wait_for(failed, f"a refusal with {text}; log:\n" + self.daemon.log()[-2000:])

    def check_refused(self, text, **files):
        """The new content is refused with `text`; the old one goes on."""
        before = self.served()
        failed = scrape(self.daemon).sum("ulfd_model_load_failures_total")
        modelfiles.replace(self.put_aside(self.next_stamp(), **files), self.target)
        status = self.wait_failed(text)
        self.assertTrue(status.serving)
        self.assertGreater(scrape(self.daemon).sum("ulfd_model_load_failures_total"), failed)
        self.assertIn(text.replace('"', ""), self.daemon.log().replace("\\", "").replace('"', ""))
        self.assertNotIn("type.ulfd", self.daemon.log())  # How a reason travels inside.
        self.assertEqual(self.served(), before)
        self.assertEqual(self.daemon.http("/readyz")[0], 200)
        self.assertEqual(self.client.health("model/stamp"), "SERVING")
        return status

    def test_broken_content_keeps_the_old_one(self):
        with Callers(self.daemon, IDS, stamp_of, threads=2) as callers:
            self.check_refused(
                "wishful_layer",
                **{"graph_ulf.txt": stamp_graph().replace("inner_product_layer", "wishful_layer")})
            self.check_refused("items:2", items="0,1,1,1,1\n1,x,1,1,1\n")
            self.check_refused("weights.pb", **{"weights.pb": b"\x0a\xff\xff\xff\x7fabc"})
            self.put_back()
            self.assertEqual(self.client.version("stamp", 1).error, "")
        self.assertEqual(callers.failures, [])

    def test_half_copied_content_waits(self):
        before = self.served()
        stamp = self.next_stamp()
        files = stamp_files(stamp)
        table = files.pop("items")
        path = os.path.join(self.aside, str(stamp))
        modelfiles.write_version(path, files, success=False)
        name = {"reason": "incomplete"}
        failed = scrape(self.daemon).sum("ulfd_model_load_failures_total", **name)
        with Callers(self.daemon, IDS, stamp_of, threads=2) as callers:
            modelfiles.replace(path, self.target)
            # After the settle time: the table that the graph names is missing.
            status = self.wait_failed("items does not exist")
            self.assertTrue(status.serving)
            self.assertEqual(self.served(), before)
            self.assertGreater(scrape(self.daemon).sum("ulfd_model_load_failures_total", **name),
                               failed)
            modelfiles.write(os.path.join(self.target, "items"), table)
            self.wait_served(stamp, callers)
        self.assertEqual(callers.failures, [])
        self.assertEqual(self.client.version("stamp", 1).error, "")

    def test_new_version_takes_over_and_the_old_one_goes(self):
        folder = os.path.dirname(self.target)
        before, new = self.served(), self.next_stamp()
        generation = self.client.list_models().generation
        with Callers(self.daemon, IDS, stamp_of, threads=4) as callers:
            os.rename(self.put_aside(new), os.path.join(folder, "2"))
            self.wait_served(new, callers)
            wait_for(lambda: not getattr(self.client.version("stamp", 1), "serving", False),
                     "version 1 is unloaded")
            self.assertGreater(self.client.list_models().generation, generation)
            request = predict_request("stamp", stamp_inputs(IDS), ())
            request.model.version = 1
            with self.assert_refused(grpc.StatusCode.NOT_FOUND):
                self.client.predict(request)
            self.assertEqual(scrape(self.daemon).sum("ulfd_model_info", model="stamp",
                                                     version="1"), 0)
            # Taking version 2 away brings version 1 back; until then version 2 serves.
            shutil.rmtree(os.path.join(folder, "2"))
            self.wait_served(before, callers)
        self.assertEqual(callers.failures, [])

    def test_deleted_model_is_not_found(self):
        name = "passing"
        add_stamp(self.repository, 9, name=name)
        request = predict_request(name, stamp_inputs(IDS), ())

        def answered():
            try:
                return self.client.predict(request)
            except grpc.RpcError as error:
                self.assertIn(error.code(), (grpc.StatusCode.NOT_FOUND,
                                             grpc.StatusCode.UNAVAILABLE))
                return None

        wait_for(answered, "the new model answers")
        self.assertIn(f'model="{name}"', self.daemon.http("/metrics")[1])
        shutil.rmtree(os.path.join(self.repository, name))
        wait_for(lambda: not answered(), "the model is gone")
        with self.assert_refused(grpc.StatusCode.NOT_FOUND):
            self.client.predict(request)
        wait_for(lambda: f'model="{name}"' not in self.daemon.http("/metrics")[1],
                 "its series are gone")
        self.assertEqual(self.daemon.http("/readyz")[0], 200)

    def test_other_models_are_untouched(self):
        arrays = shop().inputs(7, seed=7)
        expected = shop().scores(arrays)["output"]
        generation = self.client.version("shop", 1).generation
        self.put_back()
        found = outputs_of(self.client.predict(predict_request("shop", arrays, USER)))["output"]
        self.assert_close(found, expected, 1e-5)
        self.assertEqual(self.client.version("shop", 1).generation, generation)


class VersionsTest(DaemonTest):
    """Policies and labels of the configuration."""

    CONFIG = ReloadTest.CONFIG + """
default_version_policy { latest { count: 2 } }
models {
  name: "stamp"
  version_policy { specific { versions: 2 versions: 4 } }
  labels { key: "stable" value: 2 }
  labels { key: "canary" value: 4 }
}
"""

    @classmethod
    def fill(cls, repository):
        for version in (1, 2, 3, 4):
            add_stamp(repository, 10 * version, version)
            add_stamp(repository, 100 * version, version, name="latest")

    def stamp(self, model="stamp", **spec):
        request = predict_request(model, stamp_inputs(IDS), ())
        for name, value in spec.items():
            setattr(request.model, name, value)
        reply = self.client.predict(request)
        stamp = stamp_of(IDS, outputs_of(reply)["score"].ravel().tolist())
        self.assertEqual(reply.model.version * (100 if model == "latest" else 10), stamp)
        return stamp

    def refused(self, model="stamp", **spec):
        with self.assertRaises(grpc.RpcError) as caught:
            self.stamp(model, **spec)
        return caught.exception.code(), caught.exception.details()

    def test_specific_versions(self):
        self.assertEqual(self.stamp(version=2), 20)
        self.assertEqual(self.stamp(version=4), 40)
        for version in (1, 3, 9):
            code, text = self.refused(version=version)
            self.assertEqual(code, grpc.StatusCode.NOT_FOUND)
            self.assertIn(str(version), text)
            self.assertIn("stamp", text)

    def test_labels(self):
        self.assertEqual(self.stamp(label="canary"), 40)
        self.assertEqual(self.stamp(label="stable"), 20)
        self.assertEqual(self.stamp(), 20)  # "stable" decides where a request says nothing.
        code, text = self.refused(label="canari")
        self.assertEqual(code, grpc.StatusCode.NOT_FOUND)
        self.assertIn("canari", text)
        self.assertEqual(list(self.client.version("stamp", 4).labels), ["canary"])

    def test_latest_two(self):
        self.assertEqual(self.stamp("latest"), 400)
        self.assertEqual(self.stamp("latest", version=3), 300)
        self.assertEqual(self.refused("latest", version=2)[0], grpc.StatusCode.NOT_FOUND)
        add_stamp(self.repository, 500, 5, name="latest")
        wait_for(lambda: self.stamp("latest") == 500, "version 5")
        self.assertEqual(self.stamp("latest", version=4), 400)
        wait_for(lambda: self.client.version("latest", 3) is None or
                 not self.client.version("latest", 3).serving, "version 3 is unloaded")
