"""A web server of model versions that lies, breaks and hangs where it is told to.
SPDX-License-Identifier: Apache-2.0
"""
import html
import http.server
import os
import re
import threading
import urllib.parse


class Web:
    """Serves a folder with index pages, lengths, ETags and ranges; use as a context manager.

    misdeeds: path -> function of the handler, which answers in the server's place and returns True, or
    returns False to have it answer as usual.  sent: bytes of bodies per path."""

    def __init__(self, folder, ranges=True):
        self.folder, self.ranges = folder, ranges
        self.misdeeds, self.sent, self.asked = {}, {}, []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # Clients hang up on misdeeds.
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever)

    def _handler(self):
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # Head and body together, or each waits for an acknowledgement.

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
                web.asked.append((self.command, path, self.headers.get("Range")))
                try:
                    misdeed = web.misdeeds.get(path)
                    if misdeed is None or not misdeed(self):
                        self.answer(web.folder + path)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def reply(self, code, body=b"", **headers):
                self.send_response(code)
                headers.setdefault("Content_Length", len(body))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()
                self.body(body)

            def body(self, data):
                if self.command == "GET":
                    self.wfile.write(data)
                    path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
                    web.sent[path] = web.sent.get(path, 0) + len(data)

            def answer(self, full):
                if os.path.isdir(full):
                    names = [name + "/" * os.path.isdir(os.path.join(full, name))
                             for name in sorted(os.listdir(full))]
                    links = "".join(f'<a href="{html.escape(urllib.parse.quote(name))}">x</a>\n'
                                    for name in ["../", *names])
                    return self.reply(200, links.encode(), Content_Type="text/html")
                if not os.path.isfile(full):
                    return self.reply(404, b"no such file")
                with open(full, "rb") as file:
                    data = file.read()
                tag = f'"{os.stat(full).st_mtime_ns:x}"'
                part = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
                if part and web.ranges:
                    begin = int(part[1])
                    return self.reply(206, data[begin:], ETag=tag, Content_Range=
                                      f"bytes {begin}-{len(data) - 1}/{len(data)}")
                return self.reply(200, data, ETag=tag)

        return Handler

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
