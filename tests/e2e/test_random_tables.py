"""Random tables, deltas, rollbacks and restarts beside dictionaries that say what is right.
ULFD_RANDOM_TABLES=SEED,COUNT tries others (tests/e2e/README.md).
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import random
import struct
import unittest

import grpc
import numpy as np

from harness import env, modelfiles
from harness.admin import AdminClient
from harness.clients import Client, outputs_of, predict_request
from harness.daemon import FAST, Daemon, wait_for
from harness.loading import ulf
from harness.modelfiles import embedding_conf, layer, sparse_inputs, table_text

SEED, COUNT = (int(n) for n in os.environ.get("ULFD_RANDOM_TABLES", "1,4").split(","))
EDGES = [0, 1, -1, 2**31, -2**31, 2**63 - 1, -2**63, 2**32, 2**53 + 1]
TOLERANCE = {"fp32": 1e-6, "fp16": 1e-3, "bf16": 8e-3, "int8": 8e-3}  # Of the largest value.
SUM, AVG, ASSIGN = range(3)


def good(*arguments):
    code, out, err = ulf(*arguments)
    assert code == 0, (arguments, out + err)


def write_text(base, keys, rows):
    modelfiles.write(base, table_text(dict(zip(keys.tolist(), rows))))
    return [base]


def write_csv(base, keys, rows):
    lines = [["id", *(f"v{i}" for i in range(rows.shape[1]))],
             *([key, *row] for key, row in zip(keys.tolist(), rows.tolist()))]
    modelfiles.write(base, "\r\n".join(",".join(f'"{x}"' for x in line) for line in lines))
    return [base]


def write_npz(base, keys, rows):
    np.savez(base + ".npz", keys=keys, rows=rows)
    return [base + ".npz"]


def write_npy(base, keys, rows):
    np.save(base + ".keys.npy", keys)
    np.save(base + ".rows.npy", np.asfortranarray(rows.astype(np.float64)))
    return [base + ".keys.npy", base + ".rows.npy"]


def write_hps(base, keys, rows):
    os.makedirs(base + ".hps")
    keys.tofile(base + ".hps/key")
    rows.tofile(base + ".hps/emb_vector")
    return [base + ".hps"]


def write_safetensors(base, keys, rows):
    ends = [keys.nbytes, keys.nbytes + rows.nbytes]
    header = json.dumps({
        "keys": {"dtype": "I64", "shape": keys.shape, "data_offsets": [0, ends[0]]},
        "rows": {"dtype": "F32", "shape": rows.shape, "data_offsets": ends}}).encode()
    modelfiles.write(base + ".safetensors",
                     struct.pack("<Q", len(header)) + header + keys.tobytes() + rows.tobytes())
    return [base + ".safetensors"]


WRITERS = [write_text, write_csv, write_npz, write_npy, write_hps, write_safetensors]


def write_rows(base, rows, rng):
    """Writes {id: row} as one or two inputs of `ulf table`, which it returns."""
    keys = np.array(rng.sample(list(rows), len(rows)), np.int64)
    values = np.array([rows[key] for key in keys.tolist()], np.float32)
    cuts = rng.choice([[], [rng.randrange(len(keys))]])
    return [name for part in np.split(np.arange(len(keys)), cuts) if len(part) > 0
            for name in rng.choice(WRITERS)(f"{base}.{part[0]}", keys[part], values[part])]


class Table:
    def __init__(self, name, rng):
        self.name, self.rng = name, rng
        self.dim = rng.choice([1, 3, 4, 7, 8, 18, 33])
        self.tier = rng.choice(["text", "file", "rocksdb"])
        self.format = "fp32" if self.tier == "text" else rng.choice(list(TOLERANCE))
        self.policy = rng.choice(["ZERO", "DEFAULT_ROW", "ERROR", "MEAN_ROW"])
        self.span = rng.choice([50, 1000, 2**40])  # Of ids, either side of 0.
        self.base = self.draw(rng.choice([1, 2, 30, 500, 3000]))
        self.default = rng.choice(list(self.base))
        self.pooling = rng.choice([SUM, AVG, ASSIGN])
        self.slots, self.reverse = rng.choice([1, 2, 5]), rng.choice([0, 1])

    def draw(self, count):
        ids = {self.rng.randrange(-self.span, self.span) for _ in range(count)}
        if self.rng.random() < 0.3:
            ids.update(self.rng.sample(EDGES, 3))
        elif self.rng.random() < 0.3:
            ids = range(len(ids))
        return {i: self.row() for i in ids}

    def row(self):
        return [self.rng.randrange(512) / 4 for _ in range(self.dim)]

    def write(self, folder, scratch):
        """Into a version; returns what its manifest says of it."""
        inputs = write_rows(os.path.join(scratch, self.name), self.base, self.rng)
        store = ""
        if self.tier == "rocksdb":
            store = (f'store {{ rocksdb: "{self.name}" fetch_timeout_ms: 60000 '
                     f"cache_bytes: {self.rng.choice([20000, 10000000])} }}")
        if self.tier == "text":
            modelfiles.write(os.path.join(folder, self.name), table_text(self.base))
        else:
            good("table", "build", os.path.join(folder, self.name), *inputs, f"--rows={self.format}",
                 "--to=rocksdb" if store else "--to=file")
        default = f"default_id: {self.default}" if self.policy == "DEFAULT_ROW" else ""
        policy = f"missing_keys: MISSING_KEY_POLICY_{self.policy}"
        return f'tables {{ name: "{self.name}" {policy} {default} {store} }}\n'

    def missing_row(self, rows):
        """What stands for an id that `rows` lacks; the mean row is that of the version."""
        if self.policy == "MEAN_ROW":
            return np.mean(list(self.base.values()), axis=0)
        return rows[self.default] if self.policy == "DEFAULT_ROW" else np.zeros(self.dim)

    def pool(self, rows, ids, values):
        found = [v * np.array(rows[i] if i in rows else self.missing_row(rows))
                 for i, v in zip(ids, values)]
        if self.pooling == ASSIGN:
            none = [np.zeros(self.dim)] * (self.slots - len(found))
            kept = none + found[-self.slots:] if self.reverse else found[:self.slots] + none
            return np.concatenate(kept)
        return sum(found, np.zeros(self.dim)) / (len(found) if found and self.pooling == AVG else 1)


class Model:
    """A version, its deltas, and what each epoch of it answers."""

    def __init__(self, rng, scratch, path):
        self.rng, self.scratch, self.path = rng, scratch, path
        self.tables = [Table(f"t{i}", rng) for i in range(rng.choice([1, 2, 3]))]
        os.makedirs(path)
        manifest = "".join(table.write(path, scratch) for table in self.tables)
        names = [table.name for table in self.tables]
        graph = (layer("input_layer", "", [], sparse_inputs(*names)) +
                 layer("embedding_layer", "embedding", sparse_inputs(*names),
                       [f"{name}_pooled" for name in names],
                       param='embedding_param { embedding_conf_path: "conf" level: 0 }') +
                 "".join(layer("relu_layer", "", [f"{name}_pooled"], [f"{name}_out"])
                         for name in names))
        blocks = [[(t.name, f"udf_type: {t.pooling} trunc_num: {t.slots} trunc_direction: {t.reverse}")]
                  for t in self.tables]
        conf = embedding_conf({table.name: (table.name, table.dim) for table in self.tables}, blocks)
        modelfiles.write_version(path, {"graph_ulf.txt": graph, "conf": conf, "weights.pb": "",
                                        "model.textproto": manifest})
        self.epochs = {0: [table.base for table in self.tables]}
        self.epoch = 0

    def push(self):
        """Writes the next delta, if it changes anything."""
        last = max(self.epochs)
        epoch, after, arguments = last + self.rng.choice([1, 1, 5]), [], []
        for table, rows in zip(self.tables, self.epochs[last]):
            base = os.path.join(self.scratch, f"{table.name}.{epoch}")
            kept = {table.default} if table.policy == "DEFAULT_ROW" else set()
            drop = self.some(sorted(set(rows) - kept), [0, 0, 1, 10])
            puts = {i: table.row() for i in self.some(list(rows), [0, 1, 20])}
            puts.update(table.draw(self.rng.choice([0, 0, 1, 20, 300, 15000])))  # 10000 are folded.
            puts = {i: row for i, row in puts.items() if i not in drop}
            if drop:
                modelfiles.write(base + ".ids", self.rng.choice(["\n", "\r\n"]).join(map(str, drop)))
                arguments.append(f"drop:{table.name}={base}.ids")
            if puts:
                arguments.append(f"put:{table.name}=" + ",".join(write_rows(base, puts, self.rng)))
            after.append({**{i: row for i, row in rows.items() if i not in drop}, **puts})
        if arguments:
            good("table", "push", self.path, f"--epoch={epoch}", *arguments)
            self.epochs[epoch] = after
            self.epoch = epoch

    def some(self, items, counts):
        return self.rng.sample(items, min(len(items), self.rng.choice(counts)))

    def draw_ids(self, table, rows):
        """Of some ads."""
        known = list(rows) + list(table.base)
        strange = EDGES + [self.rng.randrange(-table.span, table.span) for _ in range(5)]
        return [self.rng.choice(known if self.rng.random() < 0.9 else strange)
                for _ in range(self.rng.choice([0, 1, 2, 7]))]

    def request(self):
        """Inputs and the outputs they lead to, or None: a table refuses an id."""
        inputs, outputs, refused = {}, {}, False
        ads = self.rng.choice([1, 2, 9])
        for table, rows in zip(self.tables, self.epochs[self.epoch]):
            ids = [self.draw_ids(table, rows) for _ in range(ads)]
            values = [[self.rng.choice([1, 1, 2, 0.5]) for _ in row] for row in ids]
            inputs[f"{table.name}.ids"] = np.array(sum(ids, []), np.int64)
            inputs[f"{table.name}.values"] = np.array(sum(values, []), np.float32)
            inputs[f"{table.name}.segments"] = np.array([len(row) for row in ids], np.int32)
            outputs[f"{table.name}_out"] = np.array([table.pool(rows, i, v) for i, v in zip(ids, values)])
            refused |= table.policy == "ERROR" and any(i not in rows for i in sum(ids, []))
        return inputs, None if refused else outputs


class RandomTablesTest(unittest.TestCase):
    def start(self):
        self.daemon = Daemon(os.path.join(self.scratch, "models"), self.config)
        self.addCleanup(self.daemon.kill)
        self.client = Client(self.daemon)
        self.addCleanup(self.client.close)
        self.admin = AdminClient(self.daemon.admin_target)
        self.addCleanup(self.admin.close)

    def operator(self, *arguments):
        good("admin", self.daemon.admin_target, *arguments)

    def check(self, model):
        def epoch():
            return self.admin.call("GetStatus").models[0].versions[0].epoch

        wait_for(lambda: epoch() == model.epoch,
                 f"epoch {model.epoch}, not {epoch()}; {self.daemon.log()[-3000:]}")
        for _ in range(6):
            inputs, wanted = model.request()
            try:
                outputs = outputs_of(self.client.predict(predict_request("m", inputs, ())))
            except grpc.RpcError as error:
                self.assertRegex(error.details(), r"id -?\d+ is not in table")
                self.assertIsNone(wanted)
                continue
            self.assertIsNotNone(wanted, inputs)
            for table in model.tables:
                want = wanted[table.name + "_out"]
                np.testing.assert_allclose(outputs[table.name + "_out"].reshape(want.shape), want, rtol=0,
                                           atol=TOLERANCE[table.format] * max(1, np.max(want)),
                                           err_msg=f"{table.name}: {vars(table)}"[:500])

    def change(self, model):
        if model.rng.random() < 0.7:
            model.push()
        else:
            model.epoch = model.rng.choice(list(model.epochs))
            self.operator("rollback", "m", f"--epoch={model.epoch}")
            self.check(model)
            self.operator("load", "m")
            model.epoch = max(model.epochs)
        self.check(model)

    def run_scenario(self, rng):
        self.scratch = env.scratch("random_tables")
        self.config = (FAST + 'admin_address: "unix:admin.sock"\n' +
                       f'state_file: "{self.scratch}/state"\n' +
                       f"deltas {{ fold_share: {rng.choice([0.001, 0.2, 100])} }}\n")
        model = Model(rng, self.scratch, os.path.join(self.scratch, "models", "m", "1"))
        for _ in range(rng.choice([2, 4])):
            self.start()
            self.check(model)
            for _ in range(rng.choice([1, 2, 5])):
                self.change(model)
            rng.choice([self.daemon.kill, self.daemon.stop])()

    def test_scenarios(self):
        for seed in range(SEED, SEED + COUNT):
            with self.subTest(seed=seed):
                self.run_scenario(random.Random(seed))
