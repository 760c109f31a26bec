"""Bounds the memory of a process together with the pages of files that it brings in.
SPDX-License-Identifier: Apache-2.0
"""
import os
import time


class MemoryGroup:
    """A control group of this machine, of version 1 or 2; with root's rights only."""

    V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"

    def __init__(self, limit_bytes):
        """OSError where there are no such groups."""
        first = os.path.exists(os.path.join(self.V1, "memory.limit_in_bytes"))
        self.path = os.path.join(self.V1 if first else self.V2, f"ulfd_test_{os.getpid()}")
        self.current = "memory.usage_in_bytes" if first else "memory.current"
        os.mkdir(self.path)
        try:
            self._write("memory.limit_in_bytes" if first else "memory.max", limit_bytes)
        except OSError:
            self.close()
            raise

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            file.write(str(value))

    def enter(self):
        """Moves the process that calls it; for a child before it runs its program."""
        self._write("cgroup.procs", os.getpid())

    def bytes(self):
        with open(os.path.join(self.path, self.current), encoding="utf-8") as file:
            return int(file.read())

    def close(self):
        """After its last process has ended."""
        for _ in range(100):
            try:
                return os.rmdir(self.path)
            except OSError:  # The kernel is not done with the process yet.
                time.sleep(0.05)
        return os.rmdir(self.path)
