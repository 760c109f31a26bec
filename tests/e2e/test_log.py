"""The log: JSON on every line, what a start finds.
SPDX-License-Identifier: Apache-2.0
"""
import json

from harness.daemon import FAST
from harness.fixtures import DaemonTest, add_stamp


def lines(daemon, message):
    """The log's objects with that message; every line is an object."""
    found = [json.loads(line) for line in daemon.log().splitlines()]
    return [line for line in found if line["message"] == message]


class StartLinesTest(DaemonTest):
    CONFIG = FAST + """
logging { format: "json" }
models { name: "stamp" labels { key: "canary" value: 9 } }
"""

    @classmethod
    def fill(cls, repository):
        add_stamp(repository, 1)

    def test_what_is_configured_and_not_there(self):
        (line,) = lines(self.daemon, "a version that is configured does not exist")
        self.assertEqual((line["level"], line["model"], line["version"], line["named_by"]),
                         ("warning", "stamp", 9, "canary"))
