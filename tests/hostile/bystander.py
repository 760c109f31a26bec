"""The client that behaves: Predict and /healthz at a steady rate, from a process of its own.

A line on the standard output for each: kind, time it was due, seconds it took, code, text.
SPDX-License-Identifier: Apache-2.0
"""
import http.client
import json
import os
import sys
import threading
import time

import grpc

# An attack takes 2 s at least: of 400 calls the p99 is the fifth worst; of 80 it would be the worst
# one alone.
CALLS_PER_SECOND, PROBES_PER_SECOND = 200, 10
# Whoever has to wait for so long was lost.
TIMEOUT = 5


def say(*what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def due_times(rate):
    """Yields when the next one is due; who is late does not wait, and its lateness counts."""
    due = time.monotonic()
    while True:
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
        yield due


def probe(port):
    for due in due_times(PROBES_PER_SECOND):
        code, text = "OK", ""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
            connection.request("GET", "/healthz")
            reply = connection.getresponse()
            if reply.status != 200:
                code, text = str(reply.status), reply.read(200).decode(errors="replace")
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            code, text = "HTTP", repr(error)
        say("probe", due, time.monotonic() - due, code, text)


def read(path):
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def call(options):
    channel_options = [("grpc.max_receive_message_length", -1)]
    metadata = None
    if options.get("authority"):
        authority, key, certificate = (read(options.get(name)) for name in ("authority", "key", "certificate"))
        credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        channel = grpc.secure_channel(options["target"], credentials, options=channel_options)
        if "token" in options:
            metadata = [("authorization", "Bearer " + options["token"])]
    else:
        channel = grpc.insecure_channel(options["target"], options=channel_options)
    predict = channel.unary_unary("/ulfd.v1.PredictionService/Predict")
    with open(options["request"], "rb") as file:
        request = file.read()

    def done(due, future):
        error = future.exception()
        code, text = ("OK", "") if error is None else (error.code().name, error.details())
        say("call", due, time.monotonic() - due, code, text)

    for due in due_times(CALLS_PER_SECOND):
        future = predict.future(request, timeout=TIMEOUT, metadata=metadata)
        future.add_done_callback(lambda f, due=due: done(due, f))


def main():
    options = json.loads(sys.argv[1])
    try:
        os.nice(-10)  # Its own lateness is not what is measured.
    except OSError:
        pass
    threading.Thread(target=probe, args=(options["http_port"],), daemon=True).start()
    call(options)


if __name__ == "__main__":
    main()
