"""A real Prometheus on a free port.
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from harness import env
from harness.daemon import wait_for


def listening_port(process, log):
    """The port of a process that took any free one: the kernel knows which."""
    if process.poll() is not None:
        with open(log, encoding="utf-8") as file:
            raise AssertionError(f"{process.args[0]} ended:\n" + file.read())
    folder = f"/proc/{process.pid}/fd"
    inodes = set()
    for fd in os.listdir(folder):
        try:
            found = re.match(r"socket:\[(\d+)\]", os.readlink(os.path.join(folder, fd)))
        except FileNotFoundError:
            continue
        if found:
            inodes.add(found.group(1))
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="utf-8") as file:
            for row in [line.split() for line in file][1:]:
                if row[3] == "0A" and row[9] in inodes:  # 0A: listens.
                    return int(row[1].rpartition(":")[2], 16)
    return None


class Program:
    """A server that is told to take any port, and ends on SIGTERM."""

    def __init__(self, name, *arguments):
        self.dir = env.scratch(name)
        log = os.path.join(self.dir, "log")
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen([name, *arguments], stdout=file, stderr=file,
                                            cwd=self.dir)
        try:
            self.port = wait_for(lambda: listening_port(self.process, log), f"port of {name}", 60)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Prometheus(Program):
    def __init__(self, config):
        """`config`: a file."""
        data = env.scratch("prometheus.data")
        super().__init__("prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}",
                         "--web.listen-address=127.0.0.1:0", "--enable-feature=exemplar-storage")

    def ask(self, path, **parameters):
        url = (f"http://127.0.0.1:{self.port}/api/v1/{path}?" +
               urllib.parse.urlencode(parameters))
        try:
            with urllib.request.urlopen(url, timeout=10 * env.SLOWNESS) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # Prometheus is not ready yet.
                return []
            raise AssertionError(f"{url}: {error.read().decode()}") from None
        return answer["data"]

    def query(self, expression):
        data = self.ask("query", query=expression)
        return data["result"] if data else []

    def value(self, expression):
        result = self.query(expression)
        return float(result[0]["value"][1]) if result else None
