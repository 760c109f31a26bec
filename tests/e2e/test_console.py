"""The console, /statusz, in a real Chromium before a daemon under load.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import time
import urllib.request

from harness import env, modelfiles
from harness.chromium import Chromium
from harness.clients import Client, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.fixtures import CANARY_AND_SHADOW, DaemonTest, add_shop, add_stamp
from harness.loading import start_load
from harness.small import stamp_files, stamp_inputs

MARKUP = "<img src=x onerror='window.pwned=1'>"
# A name of a model, an error and an id of a request that are markup.
HOSTILE = "stamp<b onclick=pwned()>&amp;"
REQUEST_ID = f'"><script>window.pwned=1</script>{MARKUP}'


def broken_files():
    files = stamp_files(1)
    before, _, after = files["graph_ulf.txt"].rpartition('"e"')
    files["graph_ulf.txt"] = before + f'"{MARKUP}"' + after
    return files


class ConsoleTest(DaemonTest):
    CONFIG = FAST + CANARY_AND_SHADOW

    @classmethod
    def fill(cls, repository):
        add_shop(repository)
        for version in (1, 2, 3):
            add_stamp(repository, version, version)
        add_stamp(repository, 1, name=HOSTILE)
        modelfiles.write_version(os.path.join(repository, HOSTILE, "2"), broken_files())

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            cls.browser = Chromium(cls.__name__ + "-browser")
        except BaseException:
            cls.daemon.kill()
            raise
        cls.browser.resize(1280, 900)
        cls.loads = [start_load(cls.daemon.target, f"--model={name}", f"--rate={rate}",
                                "--duration=1h", "--timeout=10s", "--ids=0..49")
                     for name, rate in (("shop", 40), ("stamp", 60))]

    @classmethod
    def tearDownClass(cls):
        for load in cls.loads:
            load.kill()
            load.communicate()
        cls.browser.__exit__()
        super().tearDownClass()

    def open(self, daemon=None, page="/statusz"):
        self.browser.open("about:blank")  # What the last page still reports comes before that.
        self.browser.errors.clear()
        self.browser.open(f"http://127.0.0.1:{(daemon or self.daemon).http_port}{page}")

    def text(self, section="body"):
        return self.browser.evaluate(f"document.querySelector('{section}').innerText")

    def wait_text(self, section, *wanted):
        return wait_for(lambda: all(word in self.text(section) for word in wanted),
                        f"{wanted} in {section}", 30)

    def test_programs_and_browsers_ask_at_one_address(self):
        code, text = self.daemon.http("/statusz")
        self.assertEqual((code, json.loads(text)["server"]["ready"]), (200, True))
        request = urllib.request.Request(f"http://127.0.0.1:{self.daemon.http_port}/statusz",
                                         headers={"Accept": "text/html,*/*;q=0.8"})
        with urllib.request.urlopen(request, timeout=10) as reply:
            self.assertIn("text/html", reply.headers["Content-Type"])
            policy = reply.headers["Content-Security-Policy"]
            self.assertIn(b"<title>ulfd</title>", reply.read())
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)

    def test_it_is_there_at_once_and_without_errors(self):
        took = []
        for _ in range(5):
            self.open(page="/healthz")  # What the browser needs for three bytes.
            of_browser = self.browser.cpu_ms()
            self.open()
            took.append(self.browser.cpu_ms() - of_browser)
            self.wait_text("#models", "v3")
        self.assertGreater(min(took), 0)
        self.assertLess(min(took), 100 * env.SLOWNESS, took)
        self.assertEqual(self.browser.errors, [])

    def test_charts_show_what_was_before(self):
        def looks():
            return json.loads(self.daemon.http("/history.json")[1])["looks"]

        wait_for(lambda: looks()[0]["age_ms"] > 10_000 and
                 any(of["model"] == "shop" and of["ok"] > 50 for of in looks()[-1]["versions"]),
                 "a history with calls", 60)
        opened = time.time() * 1000
        self.open()
        wait_for(lambda: self.browser.evaluate(
            "document.querySelectorAll('#rate path.line').length") > 0, "a chart", 30)
        before = self.browser.evaluate(
            f"state.samples.slice(1).filter((one) => one.at < {opened - 2000}).map((one, i) =>"
            " Between(state.samples[i], one, (of) => of.model === 'shop').ok)")
        self.assertGreater(len(before), 2)
        self.assertGreater(sum(before), 50)
        self.assertEqual(self.browser.errors, [])

    def test_it_shows_what_happens(self):
        self.open()
        self.wait_text("#models", "shop", "canary", "30 % of the calls to canary", "x-user-id",
                       "100 % of the calls to next", "stable")
        self.wait_text("#state", "ready")
        wait_for(lambda: self.browser.evaluate(
            "parseFloat(document.querySelector('#tiles b').textContent) > 50"), "calls a second", 30)
        for chart in ("rate", "latency", "queue"):
            wait_for(lambda name=chart: self.browser.evaluate(
                f"document.querySelectorAll('#{name} path.line').length") > 0, chart, 30)
        self.wait_text("#events", "published", "refused")
        self.wait_text("#slow", "queue", "ads")
        # The plan, with what its steps took in real calls.
        self.browser.evaluate("const s = byId('planned'); s.value = 'shop v1';"
                              "s.dispatchEvent(new Event('change'))")
        self.wait_text("#timed", "Means of runs with", "ads")
        self.wait_text("#steps", "cut:", "µs")
        picture = self.browser.evaluate(
            "[document.querySelectorAll('#picture .node.user').length,"
            " document.querySelectorAll('#picture .node.ad').length,"
            " document.querySelectorAll('#picture .node.joint').length,"
            " document.querySelectorAll('#picture .crossing').length,"
            " document.querySelectorAll('#picture .cutline').length]")
        self.assertTrue(all(count > 0 for count in picture), picture)
        self.assertEqual(self.browser.errors, [])

    def test_it_fits_a_phone_by_day_and_by_night(self):
        colours = set()
        for scheme in ("light", "dark"):
            self.browser.resize(400, 850, scheme)
            self.open()
            self.wait_text("#steps", "cut:")
            self.wait_text("#slow", "ads")
            self.assertEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 400)
            colours.add(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
            self.browser.screenshot(os.path.join(self.daemon.dir, f"phone-{scheme}.png"))
            self.assertEqual(self.browser.errors, [])
            self.browser.resize(1280, 900, scheme)
            self.browser.screenshot(os.path.join(self.daemon.dir, f"desk-{scheme}.png"))
        self.assertEqual(len(colours), 2)

    def test_names_errors_and_ids_stay_text(self):
        # Without other calls it is among the slowest.
        with Daemon(self.repository, name="hostile") as daemon, Client(daemon) as client:
            client.Predict(predict_request(HOSTILE, stamp_inputs([1, 2]), (),
                                           request_id=REQUEST_ID), timeout=20)
            self.open(daemon)
            self.wait_text("#models", HOSTILE, MARKUP)
            self.wait_text("#events", MARKUP)
            self.wait_text("#slow", REQUEST_ID)
            self.assertEqual(self.browser.evaluate(
                "[typeof window.pwned, document.querySelectorAll('main img, main script').length]"),
                ["undefined", 0])
            self.assertEqual(self.browser.errors, [])
            # Were markup to get in, it would not run.
            self.browser.evaluate(
                "document.body.insertAdjacentHTML('beforeend', `%s`)" % MARKUP)
            self.browser.evaluate("new Promise((done) => setTimeout(done, 300))")
            self.assertEqual(self.browser.evaluate("typeof window.pwned"), "undefined")
            self.assertIn("Content Security Policy", "".join(self.browser.errors))

    def test_it_says_when_nobody_answers(self):
        daemon = Daemon(self.repository, name="gone")
        try:
            self.open(daemon)
            self.wait_text("#state", "ready")
            self.assertTrue(self.browser.evaluate("byId('alarm').hidden"))
        finally:
            daemon.stop()
        self.wait_text("#alarm", "No answer since")
