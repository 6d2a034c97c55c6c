"""A member whose index is not what an index should be."""

import asyncio
import json
import os
import sys

from link import CALL, MESSAGE, RESULT, SYNC, Gone, tell
from members import LARGEST, enters
import words

TURNED = "\u202e"
# What every server says of itself; all other calls are answered with it, too.
DISCOVERED = json.dumps({
    "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}},
    "ttlMs": 0, "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "hostile", "version": "1"}},
}).encode()


class Owner:
    """Answers pulls with the pages of one index, each made when it is asked for."""

    def __init__(self, link, version, page, root=bytes(32)):
        self.link, self.page, self.served = link, page, 0
        self.epoch = int.from_bytes(os.urandom(7), "big")
        self.version, self.root = version, root
        self.digest = {"epoch": self.epoch, "version": self.version, "root": self.root}

    async def serve(self, seconds, most=1000):
        """Until nobody has asked for so long, or often enough."""
        if not self.served:
            tell(self.link, "index", self.digest)
        while self.served < most:
            try:
                number = await asyncio.wait_for(self.link.opened.get(), seconds)
                await self.answer(number)
            except asyncio.TimeoutError:
                break
            except Gone:
                continue
        return self.reports()

    async def answer(self, number):
        stream = self.link.streams[number]
        if number % 4 != 1:
            return
        kind = (await stream.take(1))[0]
        if kind == CALL:
            self.link.say(number, RESULT, DISCOVERED, True)
        if kind != SYNC:
            return
        _, opening = await stream.frame()
        if words.read(opening) != {"copy": "index"}:
            return
        _, body = await stream.frame()
        pull = words.read(body)
        after = pull["after"] if pull["epoch"] == self.epoch else 0
        page = {
            "number": pull["number"], "epoch": self.epoch, "after": after,
            "upto": min(after + 1, self.version), "digest": self.digest,
            "changes": self.page(after),
        }
        self.served += 1
        self.link.say(number, MESSAGE, words.write(page), True)

    def reports(self):
        reports = [m["body"] for m in self.link.heard if m["kind"] == "index_report"]
        self.link.heard[:] = [m for m in self.link.heard if m["kind"] != "index_report"]
        examples = [example for report in reports for example in report["examples"]]
        return {"pages": self.served, "reasons": sorted({e["reason"] for e in examples}),
                "entries": sorted({e["entry"] for e in examples})}


def change(server, tool=None, record=b""):
    return {"server": server, "tool": tool, "record": record}


def rooted(changes):
    """The hash over these entries, in the order of their names."""
    keyed = sorted(changes, key=lambda c: (c["server"].encode(), c["tool"] is not None, (c["tool"] or "").encode()))
    return words.root([words.leaf(c["server"], c["tool"], c["record"]) for c in keyed])


def names():
    """Servers and tools that would be taken for others, or lead out of where they belong."""
    servers = ["../../etc/passwd", "..", ".", "a\nb", "\u0430dmin", "x" * 48, "nas", "nas__demo", "demo__x", "a:b",
               "a/b", "A\u0300", "\u200bdemo", "-", "", "con", "~", "$(id)", "%2e%2e", "a\0b"]
    changes = [change(server, None, words.server_record()) for server in servers]
    tools = ["nas__demo__test_simple_text", "test_simple_text", "tes\u0442_simple_text", "test_simple_text\u200b",
             TURNED + "txet", "a b", "a\nb", "\x1b[2J", "../../x", "", "t" * 900, "mgp_kernel_stop",
             "\U000e0041\U000e0042", "mgp.tools.discover", "good"]
    changes.append(change("own", None, words.server_record()))
    for server in ("own", "nas", "nas__demo"):
        changes += [change(server, tool, words.tool_record(tool)) for tool in tools]
    other = words.tool_record("good")
    changes.append(change("own", "bad", other))
    hidden = '{"name":"hidden","description":"x%s","inputSchema":{}}'
    for number, sign in enumerate((TURNED, "\\u202e", "\\udb40\\udc41", "\\u001b[2J")):
        definition = (hidden % sign).replace('"hidden"', '"hidden%d"' % number)
        record = words.write({"definition": definition, "schemas": words.schemas("{}", "")})
        changes.append(change("own", f"hidden{number}", record))
    twice = '{"name":"twice","name":"good","inputSchema":{}}'
    changes.append(change("own", "twice", words.write({"definition": twice, "schemas": words.schemas("{}", "")})))
    return changes


def vectors():
    """Meanings that are none."""
    vector = lambda unit, numbers, model="all-MiniLM-L6-v2": {"model": model, "unit": unit, "numbers": numbers}
    bad = [
        vector(float("nan"), b"\x01" * 384), vector(float("inf"), b"\x01" * 384), vector(float("inf"), bytes(384)),
        vector(-1.0, b"\x01" * 384), vector(0.0, b"\x7f"), vector(1.0, b"\x7f" * 384), vector(1.0, b""),
        vector(1.0 / 127, b"\x7f" + bytes(5000)), vector(1.0, b"\x01", ""), vector(1.0, b"\x01", "m" * 500),
        vector(1.0, b"\x01", "a\nb"), vector(1e-38, b"\x80" * 4096), vector(3e38, b"\x7f" * 4096),
    ]
    # Another model's, of another length: taken, and compared with nothing.
    odd = [vector(1.0, b"\x01", "other"), vector(1.0, b"\x01")]
    changes = [change("own", None, words.server_record())]
    for number, one in enumerate(bad + odd):
        changes.append(change("own", f"v{number}", words.tool_record(f"v{number}", vector=one)))
    return changes


def schemas():
    """Schemas that are deep, wide, endless or none."""
    texts = {
        "deep": '{"a":' * 20_000 + "1" + "}" * 20_000,
        "lists": "[" * 100_000 + "]" * 100_000,
        "allof": '{"allOf":[' * 9_000 + "{}" + "]}" * 9_000,
        "itself": '{"$ref":"#"}',
        "circle": '{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}',
        "outside": '{"$ref":"http://127.0.0.1:1/x"}',
        "file": '{"$ref":"file:///etc/passwd"}',
        "pattern": '{"type":"object","properties":{"x":{"pattern":"(a+)+$"}}}',
        "number": '{"minimum":%s}' % ("9" * 100_000),
        "wide": '{"properties":{%s}}' % ",".join(f'"p{n}":{{}}' for n in range(15_000)),
        "text": '"text"',
        "none": "null",
    }
    changes = [change("own", None, words.server_record())]
    for name, text in texts.items():
        changes.append(change("own", name, words.tool_record(name, text)))
    return changes


def paged(changes, most=900_000):
    """The same in pages that a stream carries."""
    pages, size = [[]], 0
    for one in changes:
        length = len(one["record"]) + len(one["server"]) + len(one["tool"] or "") + 64
        if size + length > most and pages[-1]:
            pages, size = pages + [[]], 0
        pages[-1].append(one)
        size += length
    return pages


async def judged(at, key, which):
    """One index whose hash is right, and what is said to it."""
    _, link = await enters(at, key)
    changes = {"names": names, "vectors": vectors, "schemas": schemas}[which]()
    pages = paged(changes)
    owner = Owner(link, len(pages), lambda number: pages[number], rooted(changes))
    told = await owner.serve(3)
    print(json.dumps(told), flush=True)
    # It stays, and answers, until it is told to go.
    going = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not going.done():
        await owner.serve(0.2)
    return told


def tools(number):
    """A page as long as a page may be, behind one with the server."""
    made = [change("own", None, words.server_record())] if number == 0 else []
    for tool in range(number * 4_000, number * 4_000 + 4_000):
        made.append(change("own", f"t{tool:07}", words.tool_record(f"t{tool:07}", "{}")))
    return made


def quotes(number):
    """What a decoder quotes when it says what is wrong: as much as a page carries."""
    if number < 120:
        return [change(f"q{number}", None, words.write({"state": "q" * 900_000}))]
    name = "n" * 100_000
    definition = '{"name":"q","%s":1,"%s":2,"inputSchema":{}}' % (name, name)
    record = words.write({"definition": definition, "schemas": bytes(32)})
    return [change("own", f"q{number}-{part}", record) for part in range(4)]


async def endless(at, key, which):
    """Indexes without an end; how many pages of each were asked for."""
    _, link = await enters(at, key)
    server = [change("own", None, words.server_record())]
    owner = {
        "million": lambda: Owner(link, 250, tools),
        "quotes": lambda: Owner(link, 220, quotes),
        "empty": lambda: Owner(link, LARGEST, lambda number: [] if number else server),
        "beyond": lambda: Owner(link, 1, lambda _: [change("s" * 900_000, None, b"")]),
    }[which]()
    return await owner.serve(2.5, most=140)
