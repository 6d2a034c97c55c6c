"""A node that was let in, and keeps to no rule."""

import asyncio
import os
import struct

from identity import Identity
from link import CALL, ERROR, HEADER, MESSAGE, PARAMS, REFUSED, RESULT, SYNC, Gone, call, dial, greet, tell
from strangers import outcome
import words

LARGEST = 2**64 - 1


async def enters(at, key):
    identity = Identity.of_file(key)
    link = await greet(at, identity)
    asyncio.ensure_future(speaks(link))
    # What is said before the other side has put the link in its place is lost on it.
    await asyncio.sleep(0.3)
    return identity, link


async def speaks(link):
    """Answers questions about logs: who does not is not believed."""
    link.lives = True
    while not link.ended.is_set():
        for message in list(link.heard):
            if message["kind"] == "logs" and message["body"]["reason"] == "ask":
                link.heard.remove(message)
                tell(link, "logs", held(link, "answer", message["body"]["nonce"]))
        await asyncio.sleep(0.02)


def held(link, reason, nonce=None, heads=()):
    return {"reason": reason, "life": link.life, "nonce": nonce, "heads": list(heads)}


def head(issuer, after=0, last=bytes(32), behind=None):
    return {"issuer": issuer, "next": after, "last": last, "behind": behind}


def became(answer):
    """What became of a call, in a word and some more."""
    kind, body = answer
    if kind == REFUSED:
        return f"refused {body}"
    if kind == RESULT and '"isError":true' not in body:
        return "taken"
    return f"denied {body[:200]}"


async def tried(link, identity, owner, **how):
    try:
        return became(await call(link, identity, owner, **how))
    except (Gone, asyncio.TimeoutError) as why:
        return f"ended {why}"


async def assertions(at, key, owner, member):
    """Who calls: replayed, expired, for another agent, of another node."""
    owner, member = bytes.fromhex(owner), bytes.fromhex(member)
    identity, one = await enters(at, key)
    two = await greet(at, identity, life=one.life)
    stranger = Identity()
    made = lambda link=one, agent="agent.local", by=identity, **other: dict(zip(
        ("named", "signed"), words.assertion(by, owner, link.binding, agent, **other)))
    good = made()
    told = {"itself": await tried(one, identity, owner, **good)}
    named = {"named": good["named"]}
    forged = made()
    forged["signed"]["signature"] = bytes(64)
    altered = made(agent="agent.alice")
    altered["signed"]["bytes"] = altered["signed"]["bytes"].replace(b"agent.alice", b"agent.local")
    other = made(agent="agent.alice")
    tries = {
        "replayed on another link": (two, good),
        "only named on another link": (two, named),
        "its id for another agent": (one, {"named": good["named"], "signed": other["signed"]}),
        "its id, made again": (one, made(agent="agent.alice", id=good["named"])),
        "not signed": (one, forged),
        "altered": (one, altered),
        "signed by a stranger": (one, made(by=stranger)),
        "a stranger's, in its name": (one, made(by=stranger, home=identity.node.hex())),
        "of another node": (one, made(home=member.hex())),
        "for another node": (one, made(owner=member.hex())),
        "expired": (one, made(until_ms=1)),
        "too long": (one, made(until_ms=LARGEST)),
        "another agent of its own": (one, made(agent="agent.alice")),
        "a kernel's operator": (one, made(agent="agent.operator")),
        "the operator": (one, made(agent="operator")),
        "another's agent in its name": (one, made(agent="agent.local@" + member.hex())),
        "a line break": (one, made(agent="agent.a\n2026-11-24 INFO local@desk")),
        "a cursor": (one, made(agent="agent.\x1b[2Ja")),
        "a letter alike": (one, made(agent="agent.l\u043ecal")),
        "nobody": (one, made(agent="agent.")),
        "passed on": (one, dict(good, hops=2)),
        "no assertion": (one, {"named": None, "signed": None}),
        "no time": (one, dict(good, left_ms=0)),
        "for ever": (one, dict(good, left_ms=LARGEST)),
    }
    for server in ("../demo", "demo/../demo", "..", "nas/demo", "dem\u043e", "demo\0", "DEMO", "%64emo", "secret", ""):
        tries[f"server {server!a}"] = (one, dict(good, server=server))
    for method in ("mgp/kernel/stop", "mgp/access/grant", "initialize", "tools/call\n", "m" * 5000):
        tries[f"method {method[:20]!a}"] = (one, dict(good, method=method))
    for name, (link, how) in tries.items():
        told[name] = await nothing_signed(link, identity, owner, how)
    told["itself, at the end"] = await tried(one, identity, owner, **made())
    return told


KERNEL_TOOLS = {
    "mgp/agent/ask": {"target_agent_id": "agent.local", "prompt": "who is there?"},
    "mgp/tools/discover": {"query": "text"},
    "mgp/tools/request": {"requirements": {"capabilities": ["text"]}},
    "mgp/tools/call": {"name": "test_simple_text", "arguments": {}},
    "mgp/tools/session": {},
    "mgp/tools/session/evict": {"tools": []},
    "mgp/events/pending_callbacks": {},
    "mgp/events/channels": {},
    "mgp/callback/respond": {"callback_id": "1", "response": "yes"},
    "mgp/stream/cancel": {"request_id": 1},
    "mgp/stream/pace": {"request_id": 1, "max_chunks_per_second": 1},
    "mgp/access/list": {},
    "mgp/discovery/list": {},
    "mgp/health/ping": {},
    "mgp/calls/read": {"result_id": "1", "from": 0},
}


async def kernel_tools(at, key, owner):
    """The tools of the kernel, in each spelling, beside one that nobody has: codes and words of the answers."""
    owner = bytes.fromhex(owner)
    identity, link = await enters(at, key)
    told = {}
    asked = [("unknown", {})]
    asked += [(method.replace("/", by), args) for method, args in KERNEL_TOOLS.items() for by in "/._"]
    for tool, arguments in asked:
        named, signed = words.assertion(identity, owner, link.binding, "agent.local")
        kind, body = await call(link, identity, owner, named=named, signed=signed, tool=tool, arguments=arguments, mgp=True)
        told[tool] = str(body).replace(tool, "TOOL") if kind == ERROR else f"taken {kind} {body}"
    return told


async def nothing_signed(link, identity, owner, how):
    """As `tried`, where also nothing at all may be shown."""
    if how.get("named", 0) is None:
        return await unnamed(link)
    return await tried(link, identity, owner, **how)


async def unnamed(link):
    number = link.open(CALL)
    link.say(number, HEADER, words.write(words.header("demo", None, None)))
    link.say(number, PARAMS, words.params("test_simple_text", {}))
    kind, body = await link.streams[number].frame()
    return became((kind, words.read(body) if kind == REFUSED else body.decode()))


async def bring(link, *entries):
    """Entries of logs, whosever they are; returns when they were read."""
    number = link.open(SYNC)
    link.say(number, MESSAGE, words.write({"copy": "logs"}))
    link.say(number, MESSAGE, words.write({"entries": list(entries)}), end=True)
    try:
        await asyncio.wait_for(link.streams[number].take(1), 10)
    except (Gone, asyncio.TimeoutError):
        pass


async def real_entries(link):
    """The entries of the cluster, as the other side brings them to who has none."""
    nonce = os.urandom(16)
    await asyncio.sleep(0.3)
    tell(link, "logs", held(link, "ask", nonce))
    while True:
        number = await asyncio.wait_for(link.opened.get(), 20)
        stream = link.streams[number]
        if number % 4 != 1 or (await stream.take(1))[0] != SYNC:
            continue
        _, opening = await stream.frame()
        if words.read(opening) == {"copy": "logs"}:
            _, body = await stream.frame()
            link.write(number, b"", True)
            return words.read(body)["entries"]


async def logs(at, key, owner, cluster):
    """A member that signs what only an admin may, and alters what an admin signed."""
    owner_id = bytes.fromhex(owner)
    identity, link = await enters(at, key)
    told = {"before": await tried(link, identity, owner_id)}
    entries = await real_entries(link)
    told["real"] = len(entries)
    allow = words.grant(identity.node, "agent.local", owner_id, "demo")
    make = lambda sequence, change, **other: words.operation(identity, cluster, sequence, change, **other)
    first, grant = make(0, allow)
    stranger = Identity()
    altered = []
    for entry in entries:
        read = words.read(entry)
        for name in ("written", "signature", "key"):
            flipped = dict(read)
            data = bytearray(flipped[name])
            data[len(data) // 2] ^= 1
            flipped[name] = bytes(data)
            altered.append(words.write(flipped))
        altered.append(entry + b"\xc0" * 400_000)
        altered.append(words.write(dict(read, more="x" * 400_000)))
        altered.append(entry[:-1])
    last = words.read(words.read(entries[-1])["written"])
    body = words.write(dict(last, change=allow))
    tries = {
        "grants of a member": [grant, make(1, allow, previous=first)[1]],
        "an admission by a member": [make(1, words.admit(stranger.public, "admin", "evil"), previous=first)[1]],
        "itself made admin": [make(0, words.admit(identity.public, "admin", "mallory"))[1]],
        "in the name of an admin": [make(5, allow, issuer=owner_id)[1]],
        "an admin's key, a member's signature": [
            words.entry(identity, body, key=words.read(entries[-1])["key"])[1]],
        "altered": altered,
        "of another cluster": [words.operation(identity, "7" * 64, 0, allow)[1]],
        "of no cluster": [words.operation(identity, None, 0, allow)[1]],
        "another founding": [words.operation(identity, None, 0, {"found": {
            "key": identity.public, "recovery": stranger.public, "name": "mallory"}})[1]],
        "no operation": [b"", b"\xc1" * 100, words.write({}), b"\x80" * 1000],
        "nested deeply": [words.entry(identity, deep(depth))[1] for depth in (200, 900, 1500, 50_000)],
        "beyond a log": [make(LARGEST, allow)[1], make(2**63, {"revoke": {"up_to": {
            "subject": {"agent": {"node": owner, "agent": "agent.local"}}, "until": {owner: LARGEST}}}})[1]],
        "of a later build": [make(0, {"mute": {"all": True}})[1]],
    }
    for name, entries in tries.items():
        for at_once in [entries[n:n + 2] for n in range(0, len(entries), 2)]:
            await bring(link, *at_once)
        told[name] = await tried(link, identity, owner_id)
    return told


def tip(identity, entries):
    """How long the node's own log is, and the id of its last operation."""
    after, last = 0, bytes(32)
    for entry in entries:
        body = words.read(entry)["written"]
        place = words.read(body)["place"]
        if place["issuer"] == identity.node.hex() and place["sequence"] >= after:
            after, last = place["sequence"] + 1, words.entry(identity, body)[0]
    return after, last


def deep(depth):
    """An operation that holds lists in lists."""
    nested = b"\x91" * depth + b"\xc0"
    whole = words.write({"cluster": "0" * 64, "place": {"issuer": "0" * 64, "sequence": 0},
                         "previous": "0" * 64, "author": "a", "told_at_ms": 1, "change": 0})
    return whole[:-1] + nested


async def fork(at, key, owner, cluster):
    """An admin that signs two operations for one place."""
    owner = bytes.fromhex(owner)
    identity, link = await enters(at, key)
    told = {"before": await tried(link, identity, owner)}
    entries = await real_entries(link)
    after, last = tip(identity, entries)
    allow = lambda: words.grant(identity.node, "agent.local", owner, "demo")
    sign = lambda sequence, previous, **other: words.operation(
        identity, cluster, sequence, allow(), previous=previous, **other)
    first, one = sign(after, last)
    await bring(link, one)
    told["granted"] = await tried(link, identity, owner)
    # A log that is shorter than what others have of it takes nothing back.
    tell(link, "logs", held(link, "tell", heads=[head(identity.node.hex())]))
    told["rolled back"] = await tried(link, identity, owner)
    await bring(link, sign(after, last, author="other")[1])
    told["forked"] = await tried(link, identity, owner)
    await bring(link, sign(after + 1, first)[1])
    told["forked, and more"] = await tried(link, identity, owner)
    return told


def member(node, renewal, incarnation, state):
    return node + struct.pack(">QHB", renewal, incarnation, state)


async def gossip(at, key, owner, other):
    """Says of others that they are dead, and of itself what cannot be."""
    owner, other = bytes.fromhex(owner), bytes.fromhex(other)
    identity, link = await enters(at, key)
    await asyncio.sleep(0.3)
    renewals = [m["body"]["renewal"] for m in link.heard if m["kind"] == "renewal"]
    renewal = renewals[-1] if renewals else 0
    tell(link, "renewal", {"renewal": LARGEST})
    tell(link, "addresses", {"nodes": [
        {"node": other.hex(), "address": f"127.0.0.1:{port}"} for port in range(1, 60)]})
    for source, mine in ((identity.node, LARGEST), (identity.node, 1), (other, LARGEST), (owner, renewal)):
        start = source + struct.pack(">QH", mine, 65535) + owner + struct.pack(">Q", renewal)
        dead = [member(node, number, incarnation, state)
                for node in (other, owner, identity.node) for number in (renewal, LARGEST, 1)
                for incarnation in (0, 65535) for state in (1, 2)]
        told = struct.pack(">H", len(dead)) + b"".join(dead)
        for _ in range(30):
            link.packet(start + bytes([8]) + told[:1000 // 43 * 43 + 2])
            link.packet(start + bytes([10]))
            link.packet(start + bytes([8]) + struct.pack(">H", 65535) + told)
            link.packet(start + bytes([2]) + other + struct.pack(">QB", LARGEST, 1))
            link.packet(os.urandom(200))
            await asyncio.sleep(0.002)
        number = link.open(one_way=True)
        link.write(number, start + bytes([8]) + told, True)
    await asyncio.sleep(1)
    return {"sent": True, "open": not link.ended.is_set()}


async def numbers(at, key, owner):
    """The largest numbers wherever there is one."""
    identity = Identity.of_file(key)
    owner = bytes.fromhex(owner)
    told = {}
    every = {
        "pong": ("pong", {"nonce": 0, "wall_ms": LARGEST}),
        "heads": ("logs", None),
        "index": ("index", {"epoch": LARGEST, "version": LARGEST, "root": bytes(32)}),
        "renewal": ("renewal", {"renewal": LARGEST}),
        "report": ("index_report", {"refused": LARGEST, "examples": [{"entry": "\x1b[31m\n", "reason": "\u202e" * 99}] * 50}),
    }
    for wall in (0, LARGEST):
        link = await greet(at, identity, wall_ms=wall)
        asyncio.ensure_future(speaks(link))
        await asyncio.sleep(0.2)
        for kind, body in every.values():
            heads = [head(node.hex(), LARGEST, b"\xff" * 32, b"\xff" * 32) for node in (owner, identity.node)]
            for reason, nonce in (("tell", None), ("ask", os.urandom(16)), ("answer", os.urandom(16)), ("ask", None)):
                tell(link, kind, body or held(link, reason, nonce, heads))
        await asyncio.sleep(0.5)
        told[f"clock {wall}"] = await tried(link, identity, owner, request=LARGEST, audit=LARGEST)
        link.close()
    return told


async def malformed(at, key):
    """Links that begin or go on with what nobody can read; how each was ended."""
    identity = Identity.of_file(key)
    told = {}

    async def begins(name, kind, data):
        link = await dial(at, identity)
        number = link.open(kind)
        link.write(number, data)
        told[name] = await link.over(8)

    hello = words.control("hello", words.hello("mallory", bytes(16)))
    frame = lambda body, kind=MESSAGE: bytes([kind]) + struct.pack(">I", len(body)) + body
    await begins("no hello", 1, frame(words.control("ping", {"nonce": 1})))
    await begins("a call first", 2, frame(hello))
    await begins("a hello beyond the limit", 1, b"\x01\xff\xff\xff\xff")
    await begins("half a hello", 1, frame(hello)[:20])
    await begins("nothing", None, b"")
    await begins("a name that is none", 1, frame(words.control("hello", words.hello("../nas\n", bytes(16)))))
    await begins("no common version", 1, frame(words.control("hello", words.hello("mallory", bytes(16), lowest=9, highest=9))))

    async def goes_on(name, data):
        link = await greet(at, identity)
        link.write(link.control, data)
        told[name] = await link.over(8)

    await goes_on("a second hello", frame(hello))
    await goes_on("four gigabytes", b"\x01\xff\xff\xff\xff" + bytes(100))
    await goes_on("no map", frame(b"\x91" * 5000))
    await goes_on("a text of four gigabytes", frame(b"\x81\xdb\xff\xff\xff\xff"))
    await goes_on("an unknown kind of frame", frame(b"", 77))
    await goes_on("an unknown message with a cursor", frame(words.control("\x1b[2J", 0)))
    return told


async def revoked(at, key, owner, tool, arguments):
    """Calls, and is cut off amid the call: how it ended, and what the next link comes to."""
    identity, link = await enters(at, key)
    owner = bytes.fromhex(owner)
    calling = asyncio.ensure_future(tried(link, identity, owner, tool=tool, arguments=arguments, seconds=60, left_ms=60_000))
    await asyncio.sleep(1.5)
    assert not calling.done(), calling
    print("calls", flush=True)
    code = await link.over(60)
    return {"code": code, "call": await calling, "again": await outcome(greet(at, identity))}
