"""Attacks that do not hold yet: the short form leaves them out, docs/security.md ("Known weaknesses") says what they cost.
SPDX-License-Identifier: Apache-2.0
"""
OPEN = {
    # gRPC 1.51 reads it again with every piece that comes.
    "a header of 10 MB", "one header without end",
    # What gRPC has read, it parses: before the connections are closed, some hundred MiB.
    "indexed headers on many connections", "indexed headers between calls",
    # Hundreds of calls that come at once, each cheap, are answered before the next one of anybody
    # else.
    "half-open streams", "window of 0, 20000 x ListModels", "nothing is read, 20000 x ListModels",
    "window of 0, 30 connections x 900 calls",
    "greetings with 20 calls", "unix: connections", "health watches on 20 connections",
    # Closing a connection that brings too much takes the calls that it has.
    "TF: bytes that become numbers of 64 bits",
}
