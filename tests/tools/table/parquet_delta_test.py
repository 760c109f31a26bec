"""tools/table/parquet_delta: rows of TorchEasyRec's files become tables that `ulf table` takes.

  parquet_delta_test.py ULF

Reading parquet wants pyarrow, which Debian has not: rows are given here as it would give them.
SPDX-License-Identifier: Apache-2.0
"""
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    sys.exit(77)

ULF = os.path.abspath(sys.argv.pop(1))
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tools", "table",
                      "parquet_delta")
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("parquet_delta", SCRIPT)
parquet_delta = importlib.util.module_from_spec(importlib.util.spec_from_loader("parquet_delta", loader))
loader.exec_module(parquet_delta)
ITEMS, USERS = "model.ebc.embedding_bags.items.weight", "model.ebc.embedding_bags.users.weight"


def columns(*rows):
    """Of (step, table, key, embedding), with the columns that change nothing."""
    named = {name: [row[place] for row in rows] for place, name in enumerate(parquet_delta.COLUMNS)}
    return {**named, "rank": [0] * len(rows), "world_size": [2] * len(rows),
            "feature_name": ["f"] * len(rows), "source": ["train"] * len(rows)}


class ParquetDeltaTest(unittest.TestCase):
    def test_the_newest_row_of_a_key_counts(self):
        tables = parquet_delta.Tables(after_step=1)
        tables.add(columns((3, ITEMS, 7, [1, 2]), (2, ITEMS, 7, [3, 4]), (2, USERS, -9, [5.5])), "a")
        tables.add(columns((1, ITEMS, 8, [0, 0]), (3, ITEMS, 5, [6, 7]), (3, ITEMS, 7, [8, 9])), "b")
        self.assertEqual(tables.last_step, 3)
        with tempfile.TemporaryDirectory() as folder:
            files = tables.write(folder)
            self.assertEqual(sorted(files), ["items", "users"])
            with np.load(files["items"]) as found:
                np.testing.assert_array_equal(found["keys"], [5, 7])
                np.testing.assert_array_equal(found["rows"], np.array([[6, 7], [8, 9]], np.float32))
            table = os.path.join(folder, "items.ulft")
            subprocess.run([ULF, "table", "build", table, files["items"]], check=True, stdout=subprocess.DEVNULL)
            text = subprocess.run([ULF, "table", "export", table], check=True, capture_output=True, text=True)
            self.assertEqual(sorted(text.stdout.split()), ["5,6,7", "7,8,9"])

    def test_names(self):
        tables = parquet_delta.Tables(names={"b.items": "others"})
        tables.add(columns((1, "a.items", 1, [1]), (1, "b.items", 1, [1, 2])), "f")
        self.assertEqual(sorted(tables.rows), ["items", "others"])
        for fqn, text in (("c.items", 'both called items: say --table=c.items=NAME'), ("a/b", "gives no file name"),
                          ("weight", "gives no file name"), ("", "gives no file name")):
            with self.subTest(fqn=fqn), self.assertRaisesRegex(ValueError, text):
                tables.add(columns((1, fqn, 1, [1])), "f")

    def test_what_is_refused(self):
        good = (1, ITEMS, 1, [1, 2])
        for row, text in (((None, ITEMS, 1, [1, 2]), "global_step is None"), ((1, ITEMS, "1", [1, 2]), "key_id is '1'"),
                          ((1, ITEMS, 2**63, [1, 2]), "key_id is"), ((1, None, 1, [1, 2]), "table_fqn is None"),
                          ((1, ITEMS, 1, None), "embedding None"), ((1, ITEMS, 1, []), "want finite numbers"),
                          ((1, ITEMS, 1, [1, float("nan")]), "want finite numbers"),
                          ((1, ITEMS, 1, [1, None]), "want finite numbers"),
                          ((1, ITEMS, 1, [1]), "1 values, want 2 as before")):
            tables = parquet_delta.Tables()
            with self.subTest(row=row), self.assertRaisesRegex(ValueError, "^f row 1: .*" + text):
                tables.add(columns(good, row), "f")
        lacking = columns(good)
        del lacking["key_id"]
        with self.assertRaisesRegex(ValueError, '^f: no column "key_id"; there are embedding'):
            parquet_delta.Tables().add(lacking, "f")

    def test_files_of_folders(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "b"))
            for name in ("b/2.parquet", "1.parquet", "b/_SUCCESS"):
                with open(os.path.join(folder, name), "w", encoding="utf-8"):
                    pass
            found = parquet_delta.parquet_files([folder, "x"])
            self.assertEqual([os.path.relpath(path, folder) for path in found[:2]], ["1.parquet", "b/2.parquet"])
            self.assertEqual(found[2:], ["x"])


if __name__ == "__main__":
    unittest.main()
