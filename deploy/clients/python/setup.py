"""Puts the schema of the protos beside the code.  Needs protoc (Debian: protobuf-compiler).
SPDX-License-Identifier: Apache-2.0
"""
import os
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")


class BuildWithSchema(build_py):
    def run(self):
        super().run()
        subprocess.run(
            ["protoc", f"-I{ROOT}", "--include_imports", "--descriptor_set_out=" + os.path.join(
                os.path.abspath(self.build_lib), "ulfd_client", "schema.binpb"),
             "proto/predict.proto", "proto/health.proto"], check=True, cwd=ROOT)


setup(package_dir={"": "src"}, packages=["ulfd_client"], cmdclass={"build_py": BuildWithSchema})
