#!/usr/bin/env python3
"""Writes the cases of the converter tests: small Caffe and ONNX models, inputs, expected outputs.

    tests/tools/make_convert_cases.py [NAME ...]      (all cases without names)

Every case is a folder of tests/data/convert/ with the model's files, inputs.npz (named like the
inputs of the converted model) and expected.npz (named like its outputs).  Expected values are
PyTorch's own, computed in float64 where the case says so, never ours.  The files are committed, so
that the tests need neither PyTorch nor this script.  Written with PyTorch 1.13.1 (Debian
python3-torch), torchvision 0.14.1, ONNX 1.12 (python3-onnx), numpy 1.24, protobuf 3.21, Python 3.11.
"""
# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import convert_cases_caffe  # noqa: E402
import convert_cases_onnx  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "convert"


def write_npz(path, arrays):
    """Writes npz without time stamps of today, so that the same values give the same file."""
    import io
    import zipfile
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, np.ascontiguousarray(array))
            info = zipfile.ZipInfo(name.replace("/", "%2F") + ".npy", (2020, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, buffer.getvalue())


def main():
    cases = {**convert_cases_caffe.CASES, **convert_cases_onnx.CASES}
    names = sys.argv[1:] or sorted(cases)
    for name in names:
        folder = DATA / name
        folder.mkdir(parents=True, exist_ok=True)
        inputs, expected = cases[name](folder)
        write_npz(folder / "inputs.npz", inputs)
        write_npz(folder / "expected.npz", expected)
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{name}: {size} bytes, outputs " +
              ", ".join(f"{k} {v.shape}" for k, v in expected.items()))


if __name__ == "__main__":
    main()
