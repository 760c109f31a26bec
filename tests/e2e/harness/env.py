"""Where things are, and the generated Python stubs.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
E2E = os.path.join(ROOT, "tests", "e2e")
WORK = os.path.join(ROOT, "build", "e2e")
STUBS = os.path.join(WORK, "stubs")
NODE_MODULES = os.path.join(ROOT, "build", "node", "node_modules")
SHARED = os.path.join(ROOT, "..", "shared")

# Set by CTest for a build with sanitizers: everything is slower, and memory figures mean nothing.
SANITIZED = bool(os.environ.get("ULFD_SANITIZED"))
SLOWNESS = 5 if SANITIZED else 1

_bin_dir = None


def set_bin_dir(path):
    global _bin_dir
    _bin_dir = os.path.abspath(path)
    for name in ("ulfd", "ulf"):
        if not os.access(program(name), os.X_OK):
            sys.exit(f"tests/e2e: no program {program(name)}: build first, or name another folder")


def program(name):
    return os.path.join(_bin_dir, name)


def prepare(work=WORK):
    """Empties the folder for what a run writes (build/e2e) and generates the stubs there."""
    global WORK, STUBS
    WORK, STUBS = work, os.path.join(work, "stubs")
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(STUBS)
    # The native API is ours; the others are written down anew from the published protocols, so
    # that a wrong number in our own files does not go unnoticed.
    generate(ROOT, ["proto/predict.proto", "proto/admin.proto", "proto/recording.proto"])
    generate(os.path.join(E2E, "clients"), ["kserve_v2.proto", "health_v1.proto", "tf_framework.proto",
                                              "tf_serving.proto"])
    sys.path.insert(0, STUBS)


def generate(include, files):
    subprocess.run(["protoc", f"-I{include}", f"--python_out={STUBS}", *files], cwd=include,
                   check=True)


def scratch(name):
    """A new empty folder under build/e2e."""
    os.makedirs(os.path.join(WORK, "runs"), exist_ok=True)
    return tempfile.mkdtemp(prefix=f"{name}.", dir=os.path.join(WORK, "runs"))


def shared_model(name):
    """The folder of an exported model beside the repository, or None."""
    path = os.path.join(SHARED, "models", name)
    return path if os.path.isdir(path) else None
