"""All attacks, in the order in which they run: those of a scene together, the ones that end its daemon last.
SPDX-License-Identifier: Apache-2.0
"""
from attacks import (admin, certificates, http_port, kept, models, onnx_models, recordings, requests, rest, security,  # noqa: F401
                     tables, tf_serving, wire)
from attacks.common import REGISTERED
from attacks.open_holes import OPEN

_SCENES = ["plain", "onnx", "rest", "guarded", "mutual", "admin", "unix"]
ATTACKS = sorted(REGISTERED, key=lambda a: (_SCENES.index(a.scene), a.ends_daemon))
for _attack in ATTACKS:
    _attack.short = _attack.short and _attack.name not in OPEN
assert len({a.name for a in ATTACKS}) == len(ATTACKS), "two attacks of one name"
assert set(OPEN) <= {a.name for a in ATTACKS}, "open_holes.py names what is not there"
