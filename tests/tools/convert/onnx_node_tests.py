#!/usr/bin/python3
"""ONNX's own node tests (python3-onnx), converted and scored: how many are accepted, refused, wrong.

    onnx_node_tests.py ULF_CONVERT ULF [--only TEXT] [--refused] [--least N]

Takes the tests whose first input is float32 with at least one dimension, which becomes the rows
("batch"); so do other inputs with as many rows where the model converts like that (those of
integers, too, or only those of floats), and everything else is a constant.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    for name in ("float", "int", "bool", "object"):  # Tests of 2022 with a numpy of later.
        if name not in np.__dict__:
            setattr(np, name, __builtins__.__dict__[name])
    from onnx import numpy_helper, save
    from onnx.backend.test.case.node import collect_testcases
except ImportError as error:
    print(f"onnx_node_tests: {error}")
    sys.exit(77)

TOLERANCE = 1e-5


def collect():
    """(name, model, inputs, outputs) of each test; those of functions' bodies say the same again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cases = collect_testcases(None)
        except TypeError:
            cases = collect_testcases()
    for case in cases:
        inputs, outputs = case.data_sets[0]
        if not inputs or "_expanded" in case.name:
            continue
        first = inputs[0]
        if isinstance(first, np.ndarray) and first.dtype == np.float32 and first.ndim > 0:
            yield case.name, case.model, inputs, outputs


def as_model(model, arrays, rows):
    """The test's model with the inputs `rows` by row, and all others as constants."""
    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    for info in list(graph.input):
        if info.name in rows:
            dim = info.type.tensor_type.shape.dim[0]
            dim.ClearField("dim_value")
            dim.dim_param = "batch"
            continue
        graph.input.remove(info)
        if arrays.get(info.name) is None:
            raise ValueError("no tensor")
        graph.initializer.append(numpy_helper.from_array(np.asarray(arrays[info.name]), info.name))
    for info in graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    return copy


def differs(found, wanted):
    """Why the array is not the wanted one, or None."""
    wanted = np.asarray(wanted).astype(np.float64)
    if wanted.ndim == 0:
        wanted = wanted.reshape(1)
    if found.shape != wanted.shape:
        return f"shape {found.shape}, want {wanted.shape}"
    with np.errstate(all="ignore"):
        error = np.abs(found - wanted) / np.maximum(1, np.abs(wanted))
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted)) | (error <= TOLERANCE)
    return None if same.all() else f"differs by {np.nanmax(error)}"


def run(case, convert, ulf):
    """("accepted" | "refused" | "wrong", text)"""
    name, model, inputs, outputs = case
    names = [i.name for i in model.graph.input]
    arrays = dict(zip(names, inputs))
    first = inputs[0]
    like_first = [n for n, a in zip(names, inputs) if isinstance(a, np.ndarray)
                  and a.dtype in (np.float32, np.int32, np.int64)
                  and a.shape[:1] == first.shape[:1]]
    floats = [n for n in like_first if arrays[n].dtype == np.float32]
    attempts = [rows for i, rows in enumerate([floats, names[:1], like_first])
                if rows not in [floats, names[:1], like_first][:i]]
    verdict, text = "refused", ""
    with tempfile.TemporaryDirectory() as work:
        for attempt, rows in enumerate(attempts):
            try:
                save(as_model(model, arrays, rows), f"{work}/m.onnx")
            except (ValueError, TypeError, AttributeError, IndexError) as error:
                return "refused", f"test of another kind: {error}"
            out = f"{work}/{attempt}"
            done = subprocess.run([convert, "onnx", f"{work}/m.onnx", out], capture_output=True,
                                  text=True, timeout=300, check=False)
            if done.returncode != 0:
                text = done.stderr.strip()
                if done.returncode != 1:
                    return "wrong", f"exit {done.returncode}: {text}"
                continue
            np.savez(f"{work}/in.npz", **{n: arrays[n] for n in rows})
            scored = subprocess.run([ulf, "score", out, f"--inputs={work}/in.npz",
                                     f"--outputs={work}/out.npz"],
                                    capture_output=True, text=True, check=False)
            if scored.returncode != 0:
                return "wrong", scored.stderr.strip()
            with np.load(f"{work}/out.npz") as found:
                for info, wanted in zip(model.graph.output, outputs):
                    if info.name and (why := differs(found[info.name], wanted)):
                        return "wrong", f"{info.name}: {why}"
            verdict = "accepted"
            break
    return verdict, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("convert")
    parser.add_argument("ulf")
    parser.add_argument("--only", default="", help="tests whose name has this in it")
    parser.add_argument("--refused", action="store_true", help="a line for each that is refused")
    parser.add_argument("--least", type=int, default=0, help="fail if fewer are accepted")
    args = parser.parse_args()
    counts, reasons, tests = collections.Counter(), collections.Counter(), []
    cases = [case for case in collect() if args.only in case[0]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        tests = list(pool.map(lambda case: run(case, args.convert, args.ulf), cases))
    for case, (verdict, text) in zip(cases, tests):
        counts[verdict] += 1
        if verdict == "wrong" or (verdict == "refused" and args.refused):
            print(f"{verdict} {case[0]}: " + " ".join(text.split("\n")[1:]) + text.split("\n")[0])
        if verdict == "refused":
            line = re.sub(r'"[^"]*"|\[[^\]]*\]|/\S*', "*", text.split("\n")[-1])
            reasons[f"{case[1].graph.node[0].op_type}: {line.strip()[-110:]}"] += 1
    if args.refused:
        print()
        for reason, count in reasons.most_common():
            print(f"{count:4} {reason}")
    print(f"{len(cases)} node tests: {dict(counts)}")
    return 1 if counts["wrong"] or counts["accepted"] < args.least else 0


if __name__ == "__main__":
    sys.exit(main())
