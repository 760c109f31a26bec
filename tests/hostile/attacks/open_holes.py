"""Attacks that do not hold yet: the short form leaves them out, docs/security.md ("Known weaknesses") says what they cost.
SPDX-License-Identifier: Apache-2.0
"""
OPEN = {
    # Hundreds of calls that come at once, each cheap, are answered before the next one of anybody
    # else.
    "indexed headers on many streams", "admin: indexed headers on many streams", "unix: indexed headers on many streams",
    "unix: connections",
    "calls reset together",
    # A handshake takes 1.7 ms of a CPU, the client's own as much again.
    "TLS: clients that all come back",
}
