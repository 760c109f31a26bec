"""Fails if a document says something that is no longer there, so that documents cannot rot.

  tests/check_docs.py [ROOT]

In every *.md: relative links and their anchors lead somewhere; every path, file and folder in
backticks exists (words in capitals stand for any name); a README that lists its folders has all of
them; lines end at 140 columns, but for tables and code.  In a column "file, function" each name is
in the file before it; `Class::name` is anywhere.  Settings in backticks are fields of proto/server_config.proto.  The metrics
of the daemon are those of docs/operations.md; rules of Prometheus name no others, and each alert
has an entry there.  Decisions that are cited exist, and their index is complete.
SPDX-License-Identifier: Apache-2.0
"""
import fnmatch
import functools
import os
import re
import subprocess
import sys

WIDTH = 140
SOURCES = (".h", ".cc", ".proto", ".cmake", ".py", ".md", ".textproto", ".txt", "")
# What is in a version directory or made by a build is no file of ours.
NOT_OURS = {"warmup/"}


def tracked(root):
    """Files under version control or about to be."""
    command = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:  # An unpacked archive.
        names = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, _, files in os.walk(root) for name in files
                 if not os.path.relpath(folder, root).startswith("build")]
    return sorted(name for name in names if os.path.isfile(os.path.join(root, name)))


class Tree:
    def __init__(self, root):
        self.root = root
        self.files = tracked(root)
        self.names = {os.path.basename(name) for name in self.files}
        self.folders = {"."}
        for name in self.files:
            while name := os.path.dirname(name):
                self.folders.add(name)
        self.tops = {name for name in self.folders if "/" not in name}
        self.names |= {os.path.basename(name) + "/" for name in self.folders}
        self.settings = settings(self)

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def has(self, path):
        """Whether a file or folder is there; * stands for anything."""
        path = os.path.normpath(path)
        if "*" in path:
            return any(fnmatch.fnmatch(name, path) for name in [*self.files, *self.folders])
        return path in self.folders or path in self.files or f"{path}.cc" in self.files \
            or f"{path}.h" in self.files


    def pair(self, path):
        """The text of a source and of the other half of its pair."""
        stem = os.path.splitext(path)[0]
        return "".join(self.read(name) for name in (stem + ".h", stem + ".cc") if name in self.files)

    @functools.cache
    def code(self):
        return "".join(self.read(name) for name in self.files
                       if name.startswith(("base/", "engine/", "server/", "tools/"))
                       and name.endswith((".h", ".cc")))

    @functools.cache
    def words(self):
        return set(re.findall(r"\w+", self.code()))


def settings(tree):
    """Setting with settings of its own -> their names, as proto/server_config.proto has them."""
    proto = "proto/server_config.proto"
    text = tree.read(proto) if proto in tree.files else ""
    fields = {message: re.findall(r"^ +(?:(?:optional|repeated) )?(\w+) (\w+) = \d", body, re.M)
              for message, body in re.findall(r"^message (\w+) {$(.*?)^}", text, re.M | re.S)}
    return {name: {inner for _, inner in fields[kind]}
            for kind, name in fields.get("ServerConfig", []) if kind in fields}


def anchors(text):
    """The anchors that a reader of Markdown gives to its headings."""
    found = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def split(text):
    """(number, line, in a code block?) of each line."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.lstrip().startswith("```")
        yield number, line, code or fence
        code ^= fence


class Document:
    def __init__(self, tree, name):
        self.tree, self.name, self.folder = tree, name, os.path.dirname(name) or "."
        self.text = tree.read(name)
        self.errors = []
        self.listed = set()  # Files and folders that the tables of a README list.

    def complain(self, number, text):
        self.errors.append(f"{self.name}:{number}: {text}")

    def check_link(self, number, target):
        if re.match(r"[a-z]+:", target):
            return
        path, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(self.folder, path)) if path else self.name
        if not self.tree.has(file):
            self.complain(number, f"link to {target}: no such file")
        elif anchor and file.endswith(".md") and anchor not in anchors(self.tree.read(file)):
            self.complain(number, f"link to {target}: no such heading")

    def check_path(self, number, word):
        path = re.sub(r"\b[A-Z][A-Z_]+\b", "*", word.rstrip(".,:;")).rstrip("/")
        top = path.split("/")[0]
        if "/" in path:
            beside = os.path.join(self.folder, path)
            if top in self.tree.tops and not self.tree.has(path) and not self.tree.has(beside):
                self.complain(number, f"`{word}`: no such path")
        elif word.endswith("/"):
            if word not in self.tree.names:
                self.complain(number, f"`{word}`: no such folder")
        elif re.fullmatch(r"[a-z]\w*\.(h|cc|proto|py|cmake)", path) and path not in self.tree.names:
            self.complain(number, f"`{word}`: no such file")

    def check_hop(self, number, cell):
        """"`FILE`, `Name`, `Class::Name`; `FILE` ...": names without a file are anywhere."""
        text = None
        for word in re.findall(r"`([^`]+)`", cell):
            if "/" in word:
                text = self.tree.pair(word)
                continue
            name = word.split("::")[-1]
            where = self.tree.code() if text is None or "::" in word else text
            if not re.search(rf"\b{re.escape(name)}\b", where):
                self.complain(number, f"`{word}`: not there")

    def check_member(self, number, word):
        """`Class::name`; decisions may speak of what went."""
        if self.folder == "docs/decisions" or self.name == "CHANGELOG.md":
            return
        if not self.tree.words().issuperset(word.split("::")):
            self.complain(number, f"`{word}`: not there")

    def check_setting(self, number, word):
        top, dot, name = word.partition(".")
        inner = self.tree.settings.get(top)
        if self.name == "CHANGELOG.md":  # Names what went, too.
            return
        if dot and inner and re.fullmatch(r"[a-z_]+", name) and name not in inner:
            self.complain(number, f"`{word}`: no such setting")

    def check_row(self, number, cell):
        """A README's table of its files: each is beside it."""
        for word in re.findall(r"`([\w./*-]+)[^`]*`", cell):
            word = word.rstrip("/")
            beside = os.path.join(self.folder, word)
            if not any(self.tree.has(beside + end) for end in (*SOURCES, ".*")):
                self.complain(number, f"`{word}`: not in this folder")
            self.listed.add(word.split("/")[0])

    def check_folders(self):
        """A README with a table of folders has all of them."""
        for name in sorted(self.tree.folders):
            if os.path.dirname(name) == self.folder.lstrip(".") and not name.startswith("."):
                if os.path.basename(name) not in self.listed:
                    self.errors.append(f"{self.name}: folder {os.path.basename(name)}/ is missing")

    def check(self):
        table, has_folders = None, False
        for number, line, code in split(self.text):
            if not code and len(line) > WIDTH and not re.match(r"\s*\|", line):
                self.complain(number, f"{len(line)} columns, want at most {WIDTH}")
            hop = False
            cells = [cell.strip() for cell in line.strip().split("|")[1:-1]]
            if code or not line.lstrip().startswith("|"):
                table = None
            elif table is None:
                table, columns = cells[0], cells
            elif table in ("file", "folder") and os.path.basename(self.name) == "README.md":
                has_folders |= table == "folder"
                self.check_row(number, cells[0])
            elif "file, function" in columns:
                self.check_hop(number, cells[columns.index("file, function")])
                hop = True
            if code:
                words = re.findall(r"(?<![\w./=-])[\w.]+(?:/[\w.-]+)+", line)
                words = [word for word in words if word.split("/")[0] in self.tree.tops]
            else:
                words = re.findall(r"`([\w.*-]*[/.][\w./*-]*)[^`]*`", line)
                for word in re.findall(r"`([a-z_]+\.[a-z_]+)`", line):
                    self.check_setting(number, word)
                for word in [] if hop else re.findall(r"`([A-Z]\w*(?:::\w+)+)", line):
                    self.check_member(number, word)
                for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                    self.check_link(number, target)
            for word in words:
                if not word.startswith("/") and word not in NOT_OURS:
                    self.check_path(number, word)
        if has_folders:
            self.check_folders()
        return self.errors


def check_metrics(tree):
    """The families of the daemon and those of the document are the same."""
    code = set()
    for name in tree.files:
        if name.startswith("server/") and name.endswith(".cc"):
            code |= set(re.findall(r'"((?:ulfd|process)_[a-z_]+)"', tree.read(name)))
    said = set(re.findall(r"\b(?:ulfd|process)_[a-z_]+\b", tree.read("docs/operations.md")))
    return [f"docs/operations.md: metric {name} is missing" for name in sorted(code - said)] + \
        [f"docs/operations.md: metric {name} is none of the daemon's" for name in sorted(said - code)]


def check_alerts(tree):
    """Each alert has a row in the table of the document, and rules ask for the daemon's metrics."""
    text = tree.read("docs/operations.md")
    rows = set(re.findall(r"^\| `(Ulfd\w+)` \|", text, re.M))
    metrics = set(re.findall(r"\b(?:ulfd|process)_[a-z_]+\b", text))
    alerts, errors = set(), []
    for name in tree.files:
        if not name.startswith("deploy/prometheus/") or not name.endswith(".yml"):
            continue
        rules = tree.read(name)
        alerts |= set(re.findall(r"alert: (\w+)", rules))
        for metric in sorted(set(re.findall(r"(?<![\w:])(?:ulfd|process)_[a-z_]+", rules))):
            if re.sub("_(bucket|sum|count)$", "", metric) not in metrics:
                errors.append(f"{name}: metric {metric} is none of the daemon's")
    return errors + \
        [f"docs/operations.md: alert {name} is missing" for name in sorted(alerts - rows)] + \
        [f"docs/operations.md: alert {name} is none of the rules" for name in sorted(rows - alerts)]


def check_decisions(tree):
    folder = "docs/decisions/"
    there = {os.path.basename(name)[:4]: os.path.basename(name) for name in tree.files
             if re.match(rf"{folder}\d{{4}}-.*\.md$", name)}
    errors = []
    index = tree.read(folder + "README.md")
    for number, name in there.items():
        if f"[{number}]({name})" not in index:
            errors.append(f"{folder}README.md: {name} is missing")
        if not tree.read(folder + name).startswith(f"# {number}: "):
            errors.append(f"{folder}{name}: want a first line \"# {number}: ...\"")
    for name in tree.files:
        if name.endswith((".h", ".cc", ".proto", ".py", ".md", ".cmake", "CMakeLists.txt")):
            for number in re.findall(r"\b[Dd]ecision (\d{4})\b", tree.read(name)):
                if number not in there:
                    errors.append(f"{name}: there is no decision {number}")
    return errors


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    tree = Tree(os.path.realpath(root))
    documents = [name for name in tree.files if name.endswith(".md")]
    errors = [error for name in documents for error in Document(tree, name).check()]
    errors += check_metrics(tree) + check_alerts(tree) + check_decisions(tree)
    if not documents:
        errors.append("no document found")
    if errors:
        print("\n".join(errors), file=sys.stderr)
        sys.exit(1)
    print(f"check_docs: {len(documents)} documents, every link and path leads somewhere")


if __name__ == "__main__":
    main()
