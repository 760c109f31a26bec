"""Runs the attacks and prints the table; tests/hostile/run says how.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import os
import re
import resource
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "e2e")]

from harness import env  # noqa: E402


def options():
    parser = argparse.ArgumentParser(prog="tests/hostile/run", add_help=True)
    parser.add_argument("--only", type=re.compile)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--binary", default=os.path.join(env.ROOT, "build", "release", "bin", "ulfd"))
    return parser.parse_args()


def main():
    chosen = options()
    env.set_bin_dir(os.path.dirname(os.path.abspath(chosen.binary)))
    env.prepare(os.path.join(env.ROOT, "build", "hostile"))
    from attacks import ATTACKS  # Needs the stubs.
    from scene import Row, Scene
    attacks = [a for a in ATTACKS if (not chosen.only or chosen.only.search(a.name)) and
               (not chosen.short or a.short)]
    if chosen.list:
        for attack in attacks:
            print(f"{attack.scene:8} {attack.name:44} {attack.what}")
        return 0
    if not attacks:
        print("tests/hostile: no attack has such a name", file=sys.stderr)
        return 2
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    print(Row.COLUMNS + "\n" + Row.UNITS, flush=True)
    begin, failed, scene = time.monotonic(), [], None

    def finish():
        trouble = scene.stop()
        if trouble:
            failed.append(f"the end of {scene.kind}")
            print(f"    {scene.kind}: {trouble}", flush=True)

    for attack in attacks:
        if scene is None or scene.kind != attack.scene:
            if scene:
                finish()
            scene = Scene(attack.scene)
        row = scene.run(attack, chosen.short)
        if row.late:  # Another program may have had the CPU for a moment; what an attack does, it does again.
            row = scene.run(attack, chosen.short)
        print(row.text(), flush=True)
        if row.faults:
            failed.append(attack.name)
        if row.faults or attack.ends_daemon:  # The next one is to meet a daemon that is well.
            if row.faults and scene.daemon.alive():
                scene.daemon.kill()
            finish()
            scene = None
    if scene:
        finish()
    print(f"in {time.monotonic() - begin:.0f} s; binary: {chosen.binary}")
    for name in failed:
        print(f"did not hold: {name}")
    print(f"{len(attacks) - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
