"""Stubs of MCP-lite, generated from the document's own text (0.042, sections 5.1 and 5.2).

The document leaves out the import that its `Struct` needs; it is put in, and nothing else is changed.
"""

import importlib
import pathlib
import subprocess
import sys
import tempfile

from grpc_tools import protoc

NAME = "mcplite.proto"


def text():
    document = pathlib.Path(__file__).with_name("document.proto.txt").read_text()
    package = "package mcplite;\n"
    return document.replace(package, package + 'import "google/protobuf/struct.proto";\n')


class Stubs:
    """The generated modules, and the compiler that made them."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="mcplite-")
        pathlib.Path(self.folder.name, NAME).write_text(text())
        self.include = pathlib.Path(protoc.__file__).with_name("_proto")
        out = self.folder.name
        made = protoc.main(
            ["protoc", f"-I{out}", f"-I{self.include}", f"--python_out={out}", f"--grpc_python_out={out}", NAME]
        )
        assert made == 0, "protoc takes the document's text"
        sys.path.insert(0, out)
        self.messages = importlib.import_module("mcplite_pb2")
        self.services = importlib.import_module("mcplite_pb2_grpc")

    def decode(self, message, wire):
        """What protoc itself reads in these bytes, as text."""
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{self.folder.name}", f"-I{self.include}"]
        run = subprocess.run([*command, f"--decode=mcplite.{message}", NAME], input=wire, capture_output=True)
        assert run.returncode == 0, run.stderr
        return run.stdout.decode()
