"""What kernels say to each other, as maps by name."""

import json
import os
import time

import blake3
import msgpack


def write(message):
    return msgpack.packb(message, use_bin_type=True)


def read(body):
    return msgpack.unpackb(body, raw=False, strict_map_key=False)


def now():
    return int(time.time() * 1000)


def control(kind, body):
    return write({"kind": kind, "body": body})


def hello(name, life, role="member", wall_ms=None, features=15, lowest=1, highest=1):
    return {
        "versions": {"lowest": lowest, "highest": highest},
        "features": features,
        "life": life,
        "name": name,
        "role": role,
        "wall_ms": now() if wall_ms is None else wall_ms,
    }


def assertion(identity, to, binding, agent, **other):
    """The id of an assertion and the assertion, signed by whoever."""
    words = {
        "id": os.urandom(16),
        "agent": agent,
        "home": identity.node.hex(),
        "owner": to.hex(),
        "binding": binding,
        "until_ms": now() + 600_000,
    }
    words.update(other)
    data = b"mgp agent assertion 1\0" + write(words)
    return words["id"], {"bytes": data, "signature": identity.sign(data)}


def header(server, named, signed, method="tools/call", **other):
    made = {
        "method": method,
        "server": server,
        "tag": os.urandom(16),
        "request": 1,
        "trace": os.urandom(16).hex(),
        "audit": None,
        "assertion": named,
        "signed": signed,
        "hops": 1,
        "left_ms": 20_000,
    }
    made.update(other)
    return made


# Every extension of MGP 0.2.
MGP = {"version": "0.2.0", "extensions": [
    "security", "access_control", "audit", "code_safety", "lifecycle", "streaming", "bidirectional", "discovery",
    "tool_discovery",
]}


def params(tool, arguments, mgp=False):
    """Parameters of a client of the version without sessions."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "hostile", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"dev.cloto/mgp": MGP}} if mgp else {},
    }
    return json.dumps({"name": tool, "arguments": arguments, "_meta": meta}).encode()


def operation(identity, cluster, sequence, change, previous=bytes(32), issuer=None, author="mallory"):
    """An operation of a log, signed: its id, and the entry as it travels."""
    body = write({
        "cluster": cluster,
        "place": {"issuer": (issuer or identity.node).hex(), "sequence": sequence},
        "previous": previous.hex(),
        "author": author,
        "told_at_ms": now(),
        "change": change,
    })
    return entry(identity, body)


def entry(identity, body, key=None):
    signed = b"mgp log operation v2\0" + body
    made = {"key": key or identity.public, "signature": identity.sign(signed), "written": body}
    return blake3.blake3(signed).digest(), write(made)


def grant(home, agent, owner, server):
    """Lets an agent of one node call a server of another one."""
    return {"grant": {
        "id": os.urandom(16).hex(),
        "subject": {"agent": {"node": home.hex(), "agent": agent}},
        "resource": {"server": {"node": owner.hex(), "server": server}},
        "permission": "allow",
        "not_after_ms": None,
        "told_by": None,
        "justification": None,
        "replaces": [],
    }}


def admit(public, role, name):
    return {"admit": {"key": public, "role": role, "name": name}}


class Ticket:
    """A ticket as it is handed to people."""

    DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"

    def __init__(self, text):
        plain = text.strip().lower().replace("-", "")[len("mgp1"):]
        held = bits = 0
        data = bytearray()
        for letter in plain:
            held, bits = held << 5 | self.DIGITS.index(letter), bits + 5
            if bits >= 8:
                bits -= 8
                data.append(held >> bits & 255)
        self.inviter, self.cluster, self.secret = bytes(data[:32]), bytes(data[32:64]), bytes(data[64:96])
        hasher = blake3.blake3(self.secret, derive_key_context="mgp 2026-11 ticket id")
        self.id = hasher.digest(8)

    def proof(self, inviter, joiner, binding):
        hasher = blake3.blake3(b"mgp pairing asks 1", key=self.secret)
        hasher.update(binding)
        hasher.update(inviter)
        hasher.update(joiner)
        return hasher.digest()


def index_hash(context, parts):
    hasher = blake3.blake3(derive_key_context=context)
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def leaf(server, tool, record):
    has = bytes([1 if tool is not None else 0])
    parts = [server.encode(), has, (tool or "").encode(), record]
    return index_hash("mgp 2026-11 index entry", parts)


def root(leaves):
    hasher = blake3.blake3(derive_key_context="mgp 2026-11 index root")
    for one in leaves:
        hasher.update(one)
    return hasher.digest()


def schemas(*texts):
    return index_hash("mgp 2026-11 tool schemas", [text.encode() for text in texts])


def server_record(**other):
    return write({"state": "connected", **other})


def tool_record(name, schema='{"type":"object"}', **other):
    definition = '{"name":%s,"inputSchema":%s}' % (json.dumps(name), schema)
    made = {"definition": definition, "schemas": schemas(schema, "")}
    made.update(other)
    return write(made)
