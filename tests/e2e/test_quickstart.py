"""docs/quickstart.md, typed command by command into a shell: does every one work and print what it says?

The shell has a network of its own, so that the ports of the document are free.  Left out is what
installs and builds; a load of half a minute takes two seconds.
SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import shutil
import subprocess
import unittest

from harness import env

DOCUMENT = os.path.join(env.ROOT, "docs", "quickstart.md")
DASHBOARD = os.path.join(env.ROOT, "deploy", "grafana", "ulfd.json")
NOT_TYPED = ("deploy/install-deps", "cmake ")
LOOPBACK_UP = ("import fcntl, os, socket, struct, sys\n"
               "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x49))\n"
               "os.execvp(sys.argv[1], sys.argv[1:])")
OWN_NETWORK = ("unshare", "--net", "/usr/bin/python3", "-c", LOOPBACK_UP)
MARK, FAILED = "=== typed", "=== failed: "


def blocks():
    """[(kind, text)]: kind is "" for what is typed and "text" for what is printed."""
    with open(DOCUMENT, encoding="utf-8") as file:
        return re.findall(r"^```(\w*)\n(.*?)^```$", file.read(), re.M | re.S)


def flat(text):
    return re.sub(r"\s+", " ", text).strip()


class Shell:
    def __init__(self, folder):
        self.process = subprocess.Popen(
            [*OWN_NETWORK, "bash", "--norc"], cwd=folder, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PATH": os.path.dirname(env.program("ulf")) + ":" + os.environ["PATH"]})
        self.transcript = ""
        self.type(f"trap 'echo \"{FAILED}$BASH_COMMAND\"' ERR")

    def type(self, text):
        """What is printed meanwhile; every command must end well."""
        self.process.stdin.write(f"{text}\nprintf '\\n{MARK}\\n'\n")
        self.process.stdin.flush()
        printed = ""
        for line in self.process.stdout:
            if line.startswith(MARK):
                if FAILED in printed:
                    raise AssertionError(f"{text}\n{printed}")
                self.transcript += printed
                return printed
            printed += line
        raise AssertionError(f"the shell ended:\n{printed}")

    def close(self):
        self.process.stdin.write("kill -9 $(jobs -p) 2>/dev/null\nexit\n")
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


@unittest.skipIf(subprocess.run([*OWN_NETWORK, "true"], capture_output=True, check=False).returncode != 0,
                 "no network namespace for the ports of the document")
@unittest.skipIf(any(shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None
                     for name in ("nginx", "prometheus", "promtool", "curl", "protoc")),
                 "no nginx, prometheus, curl or protoc")
class QuickstartTest(unittest.TestCase):
    def test_as_typed(self):
        folder = env.scratch("quickstart")
        for name in ("tests", "deploy"):
            os.symlink(os.path.join(env.ROOT, name), os.path.join(folder, name))
        shutil.copytree(os.path.join(env.ROOT, "proto"), os.path.join(folder, "proto"))
        shell = Shell(folder)
        self.addCleanup(shell.close)
        typed = 0
        for kind, text in blocks():
            if kind == "text":
                self.check_printed(text, shell.transcript)
                continue
            lines = [line for line in text.splitlines() if not line.startswith(NOT_TYPED)]
            script = "\n".join(lines).replace("--duration=30s", "--duration=2s")
            if "export PATH" in script:
                continue  # The programs that are tested.
            if script.startswith("kill"):
                self.check_dashboard(shell)
            self.check_comments(script, shell.type(script))
            typed += len(lines)
        self.assertGreater(typed, 40)

    def check_printed(self, text, transcript):
        wanted = re.escape(flat(text))
        wanted = re.sub(r"\d+\\\.\d+\\ ms", r"[\\d.]+\\ ms", wanted)
        # Kernels differ in the last digit.
        wanted = re.sub(r"(\d\\\.\d{4})\d+", r"\1\\d*", wanted)
        self.assertRegex(flat(transcript), wanted)

    def check_comments(self, script, printed):
        """Scores that comments name; and what health says."""
        for line in script.splitlines():
            comment = line.partition("  # ")[2]
            for wanted in re.findall(r"\d\.\d{4}|^SERVING$", comment):
                self.assertIn(wanted, printed, line)

    def check_dashboard(self, shell):
        """Prometheus has what the dashboard asks for: the calls that were made."""
        with open(DASHBOARD, encoding="utf-8") as file:
            self.assertIn("ulfd_requests_total{job", file.read())
        printed = shell.type("promtool query instant http://127.0.0.1:9090 "
                                "'ulfd_requests_total{job=\"ulfd\",model=\"din\",code=\"OK\"} > 100'")
        self.assertIn('model="din"', printed)


if __name__ == "__main__":
    unittest.main()
