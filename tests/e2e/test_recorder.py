"""The recorder of the daemon: what it keeps is what was asked and answered; replay; a disk that is full.
SPDX-License-Identifier: Apache-2.0
"""
import glob
import os
import shutil
import subprocess
import unittest

import numpy as np

from harness import env
from harness.clients import Client, infer_request, outputs_of, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import add_shop, add_stamp, shop
from harness.loading import load, ulf
from harness.metrics import scrape
from harness.shop import USER
from harness.small import stamp_inputs


def config(folder, more="share: 1"):
    return FAST + 'recorder { directory: "%s" %s }\n' % (folder, more)


class RecorderTest(unittest.TestCase):
    def setUp(self):
        self.work = env.scratch("recorder")
        self.repository = os.path.join(self.work, "models")
        add_shop(self.repository)
        add_stamp(self.repository, 2)
        self.folder = os.path.join(self.work, "recordings")

    def daemon(self, more="share: 1"):
        return Daemon(self.repository, config=config(self.folder, more))

    def recorded(self, daemon, count):
        return wait_for(
            lambda: scrape(daemon).sum("ulfd_recorder_records_total") >= count,
            f"{count} calls are recorded")

    def test_calls_come_out_as_they_went_in(self):
        with self.daemon() as daemon, Client(daemon) as client:
            scores = []
            for seed in range(3):
                arrays = shop().inputs(4 + seed, seed=seed)
                scores.append(outputs_of(client.predict(predict_request("shop", arrays, USER))))
            client.infer(infer_request("shop", shop().inputs(7, seed=9), USER))
            client.predict(predict_request("shop", shop().inputs(9), USER, top_k={"k": 2}))
            client.predict(predict_request("stamp", stamp_inputs([1, 2]), ()))
            self.recorded(daemon, 6)
            self.assertEqual(scrape(daemon).sum("ulfd_recorder_dropped_total"), 0)
        code, out, err = ulf("recordings", self.folder)
        self.assertEqual(code, 0, err)
        self.assertIn("6 calls in 2 files: 33 ads", out)
        self.assertRegex(out, r"shop +1 +kserve +7 ")
        self.assertRegex(out, r"shop +1 +native +9 .*\[2, 2\]")

        files = [os.path.join(self.work, name) for name in ("in.npz", "out.npz", "again.npz")]
        code, _, err = ulf("recordings", os.path.join(self.folder, "shop"), "--record=2",
                           f"--inputs={files[0]}", f"--outputs={files[1]}")
        self.assertEqual(code, 0, err)
        with np.load(files[0]) as found:
            for name, values in shop().inputs(5, seed=1).items():
                np.testing.assert_array_equal(found[name], values, name)
        with np.load(files[1]) as found:
            self.assertEqual(set(found), set(scores[1]))
            for name, values in scores[1].items():
                np.testing.assert_array_equal(found[name], values)
        # The request that was taken out scores the same offline.
        code, _, err = ulf("score", os.path.join(self.repository, "shop", "1"),
                           f"--inputs={files[0]}", f"--outputs={files[2]}")
        self.assertEqual(code, 0, err)
        with np.load(files[2]) as found:
            for name, values in scores[1].items():
                np.testing.assert_allclose(found[name], values, atol=1e-5)

    def test_requests_alone_warm_a_retrained_version(self):
        def check():
            done = subprocess.run(
                [env.program("ulfd"), "--check_config", f"--model_repository={self.repository}"],
                capture_output=True, text=True, timeout=60, check=False)
            return done.returncode, done.stderr

        with self.daemon() as daemon, Client(daemon) as client:
            for seed in range(2):
                client.predict(predict_request("stamp", stamp_inputs([1, 2 + seed]), ()))
            self.recorded(daemon, 2)
        add_stamp(self.repository, 3, version=2)
        warmup = os.path.join(self.repository, "stamp", "2", "warmup")
        os.makedirs(warmup)
        requests = os.path.join(warmup, "yesterday.ulfrec")
        recorded, = glob.glob(os.path.join(self.folder, "stamp", "*.ulfrec"))
        shutil.copy(recorded, requests)
        code, err = check()
        self.assertEqual(code, 1, err)
        self.assertIn("of other content, version 1 (`ulf recordings --requests=OUT`", err)
        code, _, err = ulf("recordings", self.folder, f"--requests={requests}")
        self.assertEqual(code, 1)
        self.assertIn("File exists", err)
        os.remove(requests)
        code, out, err = ulf("recordings", self.folder, f"--requests={requests}")
        self.assertEqual(code, 0, err)
        self.assertIn("2 requests without scores", out)
        code, err = check()
        self.assertEqual(code, 0, err)

    def test_replay(self):
        with self.daemon() as daemon:
            load(daemon.target, "--model=shop", "--ids=0..150", "--user_ids=5", "--ints=0..1",
                 "--ads=uniform:1..40", "--calls=60", "--rate=200", "--warmup=0s", "--timeout=20s")
            load(daemon.target, "--model=stamp", "--ids=0..49", "--api=kserve", "--calls=20",
                 "--rate=200", "--warmup=0s", "--timeout=20s", "--ads=3")
            self.recorded(daemon, 80)
        with Daemon(self.repository) as daemon:
            summary = load(daemon.target, f"--replay={self.folder}", "--speed=0.5",
                           "--warmup=0s", "--timeout=20s")
            self.assertEqual(summary["calls"]["answered"], 80, summary["reasons"])
            self.assertEqual(summary["load"]["arrivals"], "recorded arrivals, speed 0.5")
            found = scrape(daemon)
            self.assertEqual(found.sum("ulfd_requests_total", model="shop", code="OK"), 60)
            self.assertEqual(found.sum("ulfd_requests_total", model="stamp", code="OK"), 20)
            # The same requests, when the command line says.
            summary = load(daemon.target, f"--replay={self.folder}/shop", "--closed_loop=2",
                           "--calls=90", "--warmup=0s", "--timeout=20s")
            self.assertEqual(summary["calls"]["answered"], 90)
            self.assertEqual(summary["load"]["different_requests"], 60)
            summary = load(daemon.target, f"--ads_from={self.folder}", "--model=stamp",
                           "--ids=0..49", "--calls=30", "--rate=200", "--warmup=0s",
                           "--timeout=20s")
            self.assertAlmostEqual(
                summary["goodput_ads_per_second"] / summary["goodput_per_second"], 3)

    def test_the_slowest_calls_are_kept(self):
        with self.daemon("share: 0 slowest_per_minute: 2") as daemon, Client(daemon) as client:
            scores = []
            for ads in (2, 2000, 3, 1500, 4):
                reply = client.predict(predict_request("shop", shop().inputs(ads), USER))
                scores.append(outputs_of(reply))
            client.infer(infer_request("stamp", stamp_inputs([1, 2]), ()))
        # They are there once the minute or the daemon has ended.
        slowest = os.path.join(self.folder, "slowest")
        self.assertEqual(os.listdir(self.folder), ["slowest"])
        code, out, err = ulf("recordings", slowest)
        self.assertEqual(code, 0, err)
        self.assertRegex(out, "[234] calls in [12] files")  # More if a minute ended meanwhile.
        self.assertRegex(out, r"shop +1 +native +2,000 ")
        files = [os.path.join(self.work, name) for name in ("in.npz", "out.npz", "again.npz")]
        code, _, err = ulf("recordings", slowest, "--record=1", f"--inputs={files[0]}",
                           f"--outputs={files[1]}")
        self.assertEqual(code, 0, err)
        code, _, err = ulf("score", os.path.join(self.repository, "shop", "1"),
                           f"--inputs={files[0]}", f"--outputs={files[2]}")
        self.assertEqual(code, 0, err)
        with np.load(files[1]) as recorded, np.load(files[2]) as again:
            for name in recorded:
                np.testing.assert_allclose(again[name], recorded[name], atol=1e-5)
        with Daemon(self.repository) as daemon:
            summary = load(daemon.target, f"--replay={slowest}", "--closed_loop=1", "--calls=4",
                           "--warmup=0s", "--timeout=20s")
            self.assertEqual(summary["calls"]["answered"], 4, summary["reasons"])

    def test_a_torn_tail_is_passed_over(self):
        with self.daemon() as daemon, Client(daemon) as client:
            for _ in range(3):
                client.predict(predict_request("stamp", stamp_inputs([1, 2]), ()))
            self.recorded(daemon, 3)
        (path,) = glob.glob(os.path.join(self.folder, "stamp", "*.ulfrec"))
        os.truncate(path, os.path.getsize(path) - 7)
        code, out, err = ulf("recordings", path)
        self.assertEqual(code, 0, err)
        self.assertIn("2 calls in 1 files", out)
        self.assertIn("bytes at the end of a file were passed over", out)
        # The next daemon leaves that file alone and begins another.
        with self.daemon() as daemon, Client(daemon) as client:
            client.predict(predict_request("stamp", stamp_inputs([1]), ()))
            self.recorded(daemon, 1)
        code, out, _ = ulf("recordings", self.folder)
        self.assertIn("3 calls in 2 files", out)

    def test_a_rate_beyond_the_limit_is_dropped_and_counted(self):
        with self.daemon("share: 1 max_per_second: 5") as daemon:
            load(daemon.target, "--model=stamp", "--ids=0..49", "--calls=100", "--closed_loop=2",
                 "--warmup=0s", "--timeout=20s")

            def all_accounted_for():
                found = scrape(daemon)
                return (found.sum("ulfd_recorder_records_total") +
                        found.sum("ulfd_recorder_dropped_total", reason="rate")) == 100
            wait_for(all_accounted_for, "every call is recorded or counted as dropped")
            self.assertGreater(
                scrape(daemon).sum("ulfd_recorder_dropped_total", reason="rate"), 0)

    def test_commands_say_what_is_wrong(self):
        for arguments, code, text in (
                ((self.work + "/none",), 1, self.work + "/none"),
                ((self.repository,), 1, "holds no *.ulfrec file"),
                ((os.path.join(self.repository, "shop", "1", "graph_ulf.txt"),), 1,
                 "no file of the recorder"),
                ((self.folder, "--record=1"), 2, "--record goes with --inputs or --outputs"),
                ((self.folder, "--requests=out", "--rows=3"), 2, "--requests writes all calls"),
                ((), 2, "usage: ulf recordings")):
            found, out, err = ulf("recordings", *arguments)
            self.assertEqual(found, code, (arguments, out, err))
            self.assertIn(text, err)

    def test_a_directory_that_cannot_be_ends_the_start(self):
        self.folder = os.path.join(self.repository, "shop", "1", "graph_ulf.txt")
        with self.assertRaisesRegex(Exception, "recorder.directory: .* is no directory that can be written to"):
            self.daemon().kill()


class FullDiskTest(unittest.TestCase):
    """A real file system of 256 KiB."""

    def setUp(self):
        self.work = env.scratch("disk")
        self.disk = os.path.join(self.work, "disk")
        os.mkdir(self.disk)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", self.disk],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"cannot mount a small file system: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def test_serving_goes_on_and_recording_comes_back(self):
        repository = os.path.join(self.work, "models")
        add_stamp(repository, 2)
        filler = os.path.join(self.disk, "filler")
        with open(filler, "wb") as file:
            file.write(bytes(150000))
        calls = ("--model=stamp", "--ids=0..49", "--ads=200", "--closed_loop=2", "--warmup=0s",
                 "--timeout=20s")
        with Daemon(repository, config=config(
                self.disk + "/recordings",
                "share: 1 max_per_second: 100000 retry_interval_ms: 200")) as daemon:
            summary = load(daemon.target, *calls, "--calls=500")
            self.assertEqual(summary["calls"]["answered"], 500)
            wait_for(lambda: scrape(daemon).sum("ulfd_recorder_failing") == 1,
                     "the recorder says that it fails")

            def accounted():
                found = scrape(daemon)
                return (found.sum("ulfd_recorder_records_total"),
                        found.sum("ulfd_recorder_dropped_total"))
            wait_for(lambda: sum(accounted()) == 500, "every call is accounted for")
            written, dropped = accounted()
            self.assertGreater(written, 10)
            self.assertGreater(dropped, 100)
            self.assertEqual(daemon.log().count("recorder stopped"), 1, daemon.log())
            self.assertIn("No space left on device", daemon.log())
            os.remove(filler)

            def again():
                load(daemon.target, *calls, "--calls=2")
                return scrape(daemon).sum("ulfd_recorder_failing") == 0
            wait_for(again, "the recorder goes on", step=0.05)
            self.assertEqual(daemon.log().count("recorder goes on"), 1, daemon.log())
            self.assertGreater(accounted()[0], written)
        code, out, err = ulf("recordings", self.disk + "/recordings")
        self.assertEqual(code, 0, err)
        self.assertNotIn("passed over", out)
