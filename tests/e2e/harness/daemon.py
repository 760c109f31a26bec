"""One running ulfd.
SPDX-License-Identifier: Apache-2.0
"""
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request

from harness import env

# Quick reactions, so that the tests do not wait.
FAST = """
watch { poll_interval_ms: 50 settle_time_ms: 300 retry_backoff_ms: 100 }
shutdown { drain_delay_ms: 50 drain_timeout_ms: 20000 }
"""


class StartFailed(Exception):
    """The daemon ended instead of listening."""

    def __init__(self, code, log):
        super().__init__(f"exit code {code}\n{log}")
        self.code = code
        self.log = log


def wait_for(condition, what, seconds=15.0, step=0.01):
    """Polls until the condition gives something true, and returns that."""
    end = time.monotonic() + seconds * env.SLOWNESS
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds * env.SLOWNESS:.0f} s: {what}")
        time.sleep(step)


class Daemon:
    """Starts ulfd on free ports; use as a context manager or call stop()."""

    def __init__(self, repository=None, config=FAST, flags=(), wait_ready=True, name="ulfd",
                 environment=None, own_address=True, ports=(0, 0), before=None):
        """own_address: the gRPC port is on the loopback address; else `flags` say where it is.
        ports: of gRPC and HTTP; 0: any free one.  before: called in the child before ulfd runs."""
        self.host = "127.0.0.1"
        self.dir = env.scratch(name)
        self.log_path = os.path.join(self.dir, "log")
        self.port_file = os.path.join(self.dir, "ports")
        args = [env.program("ulfd"), "--http_address=127.0.0.1", f"--grpc_port={ports[0]}",
                f"--http_port={ports[1]}", f"--port_file={self.port_file}"]
        if own_address:
            args.append("--grpc_address=127.0.0.1")
        if repository:
            args.append(f"--model_repository={repository}")
        if config:
            args.append(f"--config={self.write_config(config)}")
        args.extend(flags)
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            cwd=self.dir, preexec_fn=before,
                                            env={**os.environ, **(environment or {})})
        try:
            self.grpc_port, self.http_port = wait_for(self._ports, "port file of ulfd", 20)
            if wait_ready:
                self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def write_config(self, text):
        """Replaces the configuration file, which the daemon reads when it is told to."""
        path = os.path.join(self.dir, "server.textproto")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def _ports(self):
        code = self.process.poll()
        if code is not None:
            raise StartFailed(code, self.log())
        try:
            with open(self.port_file, encoding="utf-8") as file:
                ports = dict(line.split(": ") for line in file.read().splitlines())
        except FileNotFoundError:
            return None
        if not {"grpc_port", "http_port"} <= ports.keys():
            return None
        return int(ports["grpc_port"]), int(ports["http_port"])

    def wait_ready(self):
        wait_for(lambda: self.http("/readyz")[0] == 200, "/readyz says 200\n" + self.log())

    @property
    def target(self):
        return f"{self.host}:{self.grpc_port}"

    @property
    def admin_target(self):
        with open(self.port_file, encoding="utf-8") as file:
            ports = dict(line.split(": ") for line in file.read().splitlines())
        port = int(ports["admin_port"])
        # A socket in the daemon's working directory has no port.
        return f"127.0.0.1:{port}" if port else "unix:" + os.path.join(self.dir, "admin.sock")

    def _tasks(self):
        return [int(task) for task in os.listdir(f"/proc/{self.process.pid}/task")]

    def thread_names(self):
        names = []
        for task in self._tasks():
            with open(f"/proc/{self.process.pid}/task/{task}/comm", encoding="utf-8") as file:
                names.append(file.read().strip())
        return names

    def affinities(self):
        """The CPUs of each thread."""
        return [os.sched_getaffinity(task) for task in self._tasks()]

    def http(self, path):
        """(status, text) of a GET."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}",
                                        timeout=10 * env.SLOWNESS) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def alive(self):
        return self.process.poll() is None

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds=30):
        return self.process.wait(seconds * env.SLOWNESS)

    def kill(self):
        if self.alive():
            self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; the daemon must end by itself with exit code 0."""
        if not self.alive():
            raise AssertionError(f"ulfd died, exit code {self.process.poll()}\n{self.log()}")
        self.terminate()
        try:
            code = self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("ulfd did not end on SIGTERM\n" + self.log()) from None
        if code != 0:
            raise AssertionError(f"ulfd ended with exit code {code}\n{self.log()}")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        else:
            self.kill()
