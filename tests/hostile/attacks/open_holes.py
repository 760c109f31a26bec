"""Attacks that do not hold yet: the short form leaves them out, docs/security.md says what they cost.
SPDX-License-Identifier: Apache-2.0
"""
OPEN = {
    "headers without end", "one header without end", "metadata just below the limit", "beyond every window",
    "half-open streams", "window of 0, 20000 x GetModelMetadata", "window of 0, 40000 x Check",
    "window of 0, 30 connections x 900 calls", "windows opened and closed", "unknown methods", "flood of Check",
    "1500 idle reflection streams", "1000 health watches", "gzip bomb, 512 MB, Check", "HTTP: connection flood",
    "model: 26 concat layers that double", "model: 60 concat layers that double", "absurd shapes, sum_layer",
    "outer products", "1 ad of [1, 150000, 8], four in parallel", "top_k, deadlines and priorities",
    "8 million fields: empty KServe inputs", "8 million fields: empty ad_features", "8 million fields, gzip",
    "SIGTERM with streams of every kind open", "window of 0, 40000 x Check without a token",
    "model: the graph is a link out", "8 million fields without a token", "gzip bomb without a token, Predict", "unix: connections",
}
