"""Chromium without a window, by the DevTools protocol over a pipe.
SPDX-License-Identifier: Apache-2.0
"""
import base64
import json
import os
import select
import shutil
import subprocess
import time
import unittest

from harness import env


class Chromium:
    """One page.  `errors` has what the browser's console shows of errors and warnings."""

    def __init__(self, name):
        if shutil.which("chromium") is None:
            raise unittest.SkipTest("no chromium here (Debian: chromium)")
        profile = env.scratch(name)
        commands, self._commands = os.pipe()
        self._replies, replies = os.pipe()
        arguments = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                     "--disable-background-networking", "--disable-dev-shm-usage",
                     f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # The protocol wants descriptors 3 and 4.
        with open(os.path.join(profile, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{replies}', "bash", *arguments],
                pass_fds=(commands, replies), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(commands)
        os.close(replies)
        self._text = b""
        self._last = 0
        self._events = []
        self._session = None
        self.errors = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self._commands)
        os.close(self._replies)

    def _read(self, seconds):
        """One message, or None."""
        end = time.monotonic() + seconds
        while b"\0" not in self._text:
            ready, _, _ = select.select([self._replies], [], [], max(0, end - time.monotonic()))
            if not ready:
                return None
            piece = os.read(self._replies, 1 << 20)
            if not piece:
                raise AssertionError("chromium ended")
            self._text += piece
        message, self._text = self._text.split(b"\0", 1)
        message = json.loads(message)
        if "method" in message:
            self._take(message)
        return message

    def _take(self, event):
        self._events.append(event["method"])
        about = event["params"]
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(about["exceptionDetails"].get("exception", about).get("description"))
        elif event["method"] == "Runtime.consoleAPICalled" and about["type"] != "log":
            self.errors.append(json.dumps(about["args"]))
        elif event["method"] == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")

    def call(self, method, **parameters):
        self._last += 1
        command = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            reply = self._read(30 * env.SLOWNESS)
            if reply is None:
                raise AssertionError(f"chromium does not answer {method}")
            if reply.get("id") == self._last:
                if "error" in reply:
                    raise AssertionError(f"{method}: {reply['error']}")
                return reply["result"]

    def open(self, url):
        self._events.clear()
        self.call("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            if self._read(30 * env.SLOWNESS) is None:
                raise AssertionError(f"{url} does not load")

    def cpu_ms(self):
        """CPU time that the page's thread has used; waiting for a processor is none of it."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return 1000 * next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    def resize(self, width, height, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        """Of the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
