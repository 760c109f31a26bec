"""Scores two ads for each of some users.
SPDX-License-Identifier: Apache-2.0

    python3 example.py HOST:PORT[,HOST:PORT...] MODEL AD_FEATURE [USERS]
"""
import sys

from ulfd_client import Client, Sparse


def main():
    targets, model, feature, *users = sys.argv[1:]
    with Client(targets.split(","), timeout=5) as client:
        for number in range(int(users[0]) if users else 1):
            reply = client.predict(model, user={}, ads={feature: Sparse([1, 2])},
                                   user_id=f"user-{number}")
            for name, scores in reply.outputs.items():
                print(f"{model} v{reply.version} {name}:", *scores.ravel().tolist())


if __name__ == "__main__":
    main()
