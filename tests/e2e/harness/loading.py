"""Runs `ulf load` as a user would.
SPDX-License-Identifier: Apache-2.0
"""
import json
import subprocess

from harness import env


def command(*arguments):
    return [env.program("ulf"), *(str(a) for a in arguments)]


def ulf(*arguments, timeout=120):
    """(exit code, stdout, stderr)"""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False,
                          timeout=timeout * env.SLOWNESS)
    return done.returncode, done.stdout, done.stderr


def load(*arguments):
    """The JSON summary of a load that must have answers."""
    code, out, err = ulf("load", *arguments, "--json")
    if code != 0:
        raise AssertionError(f"ulf load {arguments}: exit code {code}\n{out}\n{err}")
    return json.loads(out)


def start_load(*arguments):
    """A load in the background; see finish_load."""
    return subprocess.Popen(command("load", *arguments, "--json"), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish_load(process):
    out, err = process.communicate(timeout=120 * env.SLOWNESS)
    if process.returncode != 0:
        raise AssertionError(f"ulf load: exit code {process.returncode}\n{out}\n{err}")
    return json.loads(out)
