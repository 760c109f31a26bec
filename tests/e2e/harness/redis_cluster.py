"""A real Redis Cluster on the loopback interface: three masters, three replicas.
SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import shutil
import signal
import socket
import subprocess

from harness import env
from harness.daemon import wait_for

SERVER, CLI = shutil.which("redis-server"), shutil.which("redis-cli")
# How long a master is silent before its replica takes over.
NODE_TIMEOUT_MS = 1500


def _free_ports(count):
    """Ports p such that p + 10000, that of the cluster's bus, is free, too."""
    found = []
    for port in range(20011 + os.getpid() % 20000, 55000):
        sockets = []
        try:
            for number in (port, port + 10000):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", number))
            found.append(port)
        except OSError:
            pass
        finally:
            for one in sockets:
                one.close()
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


class RedisCluster:
    """Use as a context manager.  `options`: more lines of each node's configuration; `tls`: whether
    ports speak TLS alone; `login`: arguments with which redis-cli comes in."""

    def __init__(self, options=(), tls=False, login=()):
        self.dir = env.scratch("redis")
        self.options, self.tls, self.login = options, tls, list(login)
        self.ports = _free_ports(6)
        self.processes = {}

    def __enter__(self):
        try:
            for port in self.ports:
                self.start(port)
            nodes = [f"127.0.0.1:{port}" for port in self.ports]
            self.cli("--cluster", "create", *nodes, "--cluster-replicas", "1", "--cluster-yes")
            self.wait_ok()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def start(self, port):
        folder = os.path.join(self.dir, str(port))
        os.makedirs(folder, exist_ok=True)
        ports = (["port 0", f"tls-port {port}"] if self.tls else [f"port {port}"])
        lines = ["bind 127.0.0.1", *ports, f"dir {folder}", "cluster-enabled yes", "save ''",
                 "appendonly no", f"cluster-node-timeout {NODE_TIMEOUT_MS}",
                 "cluster-replica-validity-factor 0", "repl-diskless-sync-delay 0",
                 # What is not served is late; the others' rows are to be had all the same.
                 "cluster-require-full-coverage no", *self.options]
        path = os.path.join(folder, "redis.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        with open(os.path.join(folder, "log"), "a", encoding="utf-8") as log:
            self.processes[port] = subprocess.Popen([SERVER, path], stdout=log, stderr=log)
        wait_for(lambda: "PONG" in self.cli("-p", port, "ping", check=False), "a Redis node answers")

    def cli(self, *arguments, check=True):
        done = subprocess.run([CLI, *self.login, *map(str, arguments)], capture_output=True,
                              text=True, timeout=60 * env.SLOWNESS, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def on(self, port, *arguments):
        return self.cli("-p", port, *arguments)

    @property
    def nodes(self):
        return [f"127.0.0.1:{port}" for port in self.ports]

    def alive(self):
        return [port for port, process in self.processes.items() if process.poll() is None]

    def wait_ok(self):
        """Until every node that runs says that all slots are served."""
        wait_for(lambda: all("cluster_state:ok" in self.cli("-p", port, "cluster", "info",
                                                            check=False) and
                             "cluster_slots_fail:0" in self.cli("-p", port, "cluster", "info",
                                                                check=False)
                             for port in self.alive()), "the cluster is whole", 60, 0.1)

    def table(self, port):
        """[(id, port, flags, slots)] as one node knows them."""
        found = []
        for line in self.on(port, "cluster", "nodes").splitlines():
            words = line.split()
            found.append((words[0], int(words[1].split("@")[0].rsplit(":", 1)[1]), words[2],
                          words[8:]))
        return found

    def masters(self):
        return [port for _, port, flags, slots in self.table(self.alive()[0])
                if "master" in flags and "fail" not in flags and slots]

    def begin_move(self, slot, target):
        """From now on the slot is on its way to the master at that port; the keys in it."""
        names = {port: name for name, port, _, _ in self.table(target)}
        source = self.owner(slot)
        self.on(target, "cluster", "setslot", slot, "importing", names[source])
        self.on(source, "cluster", "setslot", slot, "migrating", names[target])
        return source, self.on(source, "cluster", "getkeysinslot", slot, 1000).split()

    def move_keys(self, source, target, keys):
        for key in keys:
            self.on(source, "migrate", "127.0.0.1", target, key, 0, 5000)

    def end_move(self, slot, target):
        name = next(name for name, port, _, _ in self.table(target) if port == target)
        # The new owner first: the old one may have no other slot to be master for.
        for port in sorted(self.masters(), key=lambda port: port != target):
            self.on(port, "cluster", "setslot", slot, "node", name)

    def owner(self, slot):
        """The port of the master that has it."""
        for _, port, flags, slots in self.table(self.alive()[0]):
            for words in slots:
                low, _, high = words.partition("-")
                if "master" in flags and words[0] != "[" and int(low) <= slot <= int(high or low):
                    return port
        raise AssertionError(f"nobody has slot {slot}")

    def kill(self, port):
        """A master, once its replica has all that it has: what the replica lacks would be gone."""
        def complete():
            info = self.on(port, "info", "replication")
            written = re.search(r"master_repl_offset:(\d+)", info)[1]
            return f"state=online,offset={written}," in info

        wait_for(complete, "the replica has everything", 60, 0.1)
        self.processes[port].kill()
        self.processes[port].wait()

    def stop(self, port):
        self.processes[port].send_signal(signal.SIGSTOP)

    def go_on(self, port):
        self.processes[port].send_signal(signal.SIGCONT)
