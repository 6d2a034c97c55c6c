"""More than anybody needs: before a key is shown, and after."""

import asyncio
import os
import socket
import time

from aioquic.quic.connection import QuicConnection

from identity import Identity
from link import CALL, HEADER, LINK, PARAMS, SYNC, Gone, configuration, dial, greet, tell
from members import bring, enters, held, head
import words


def address(at):
    host, port = at.rsplit(":", 1)
    return host, int(port)


class Wire:
    """A bare socket that counts bytes both ways."""

    def __init__(self, at):
        self.to = address(at)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.out = self.came = 0

    def send(self, data):
        try:
            self.socket.sendto(data, self.to)
            self.out += len(data)
        except (BlockingIOError, ConnectionRefusedError):
            pass

    def receive(self):
        packets = []
        while True:
            try:
                packets.append(self.socket.recv(65536))
                self.came += len(packets[-1])
            except (BlockingIOError, ConnectionRefusedError):
                return packets


def initial():
    """A connection that is not made, and its first packets."""
    quic = QuicConnection(configuration=configuration(Identity()))
    quic.connect(("192.0.2.1", 1), now=time.time())
    return quic, [data for data, _ in quic.datagrams_to_send(now=time.time())]


async def amplified(at):
    """Bytes that come back for each byte that was sent, by what was sent. Nobody ever shows a key."""
    told = {}

    async def measured(name, packets, rounds=20, wait=0.5):
        wire = Wire(at)
        for _ in range(rounds):
            for data in packets():
                wire.send(data)
            await asyncio.sleep(0.002)
            wire.receive()
        until = time.time() + wait
        while time.time() < until:
            await asyncio.sleep(0.05)
            wire.receive()
        told[name] = {"sent": wire.out, "came": wire.came, "times": round(wire.came / wire.out, 3)}

    first = initial()[1]
    await measured("first packets", lambda: initial()[1])
    await measured("the same first packet", lambda: first)
    await measured("first packets, cut", lambda: [first[0][:-1], first[0][:600]])
    unknown = bytes([0xC0]) + b"\x1a\x2a\x3a\x4a" + b"\x08" + os.urandom(8) + b"\x08" + os.urandom(8)
    await measured("an unknown version", lambda: [unknown.ljust(1200, b"\0")])
    await measured("an unknown version, short", lambda: [unknown])
    for size in (1, 20, 21, 22, 25, 42, 60, 1200, 60_000):
        await measured(f"no connection, {size} bytes", lambda: [bytes([0x40 | os.urandom(1)[0] & 0x3F]) + os.urandom(size - 1)])
    await measured("noise", lambda: [os.urandom(1200)])
    wire = Wire(at)
    quic, packets = initial()
    for data in packets:
        wire.send(data)
    until = time.time() + 5
    while not quic._retry_count and time.time() < until:
        await asyncio.sleep(0.02)
        for data in wire.receive():
            quic.receive_datagram(data, ("192.0.2.1", 1), now=time.time())
    # Now it has shown where it is; what comes back is not looked at any more.
    for data, _ in quic.datagrams_to_send(now=time.time()):
        wire.send(data)
    until = time.time() + 7
    while time.time() < until:
        await asyncio.sleep(0.05)
        wire.receive()
    told["a handshake that is left"] = {
        "sent": wire.out, "came": wire.came, "times": round(wire.came / wire.out, 3), "retried": quic._retry_count}
    return told


async def storm(at, seconds):
    """First packets, noise and half handshakes, as fast as one process can."""
    print("begins", flush=True)
    until, sent = time.time() + seconds, 0
    made = [initial()[1][0] for _ in range(50)]
    wires = [Wire(at) for _ in range(20)]

    async def half():
        while time.time() < until:
            wire = Wire(at)
            quic, packets = initial()
            for data in packets:
                wire.send(data)
            await asyncio.sleep(0.05)
            for data in wire.receive():
                quic.receive_datagram(data, ("192.0.2.1", 1), now=time.time())
            for data, _ in quic.datagrams_to_send(now=time.time()):
                wire.send(data)
            await asyncio.sleep(0.05)

    halves = [asyncio.ensure_future(half()) for _ in range(10)]
    while time.time() < until:
        for wire in wires:
            for data in made[:10]:
                changed = bytearray(data)
                changed[6:14] = os.urandom(8)
                wire.send(bytes(changed))
                wire.send(data)
                wire.send(os.urandom(1200))
                sent += 3
            wire.receive()
        await asyncio.sleep(0.01)
    for task in halves:
        task.cancel()
    return {"packets": sent}


async def strangers(at, count, seconds):
    """Handshakes that are made to the end, again and again, with a new key each."""
    print("begins", flush=True)
    until, made = time.time() + seconds, 0

    async def again():
        nonlocal made
        while time.time() < until:
            try:
                link = await dial(at, Identity())
                await link.over(1)
                made += 1
            except (ConnectionError, asyncio.TimeoutError):
                pass

    await asyncio.gather(*(again() for _ in range(count)))
    return {"handshakes": made}


async def lines(at):
    """Words for the log of who is dialed: an end of a handshake may give a reason."""
    for purpose in ("\n2026-11-24T00:00:00Z ERROR forged line", "\x1b[2J\x1b[31mred", "\u202eturned", "x" * 1000):
        quic, _ = initial()
        wire = Wire(at)
        quic, packets = initial()
        for data in packets:
            wire.send(data)
        until = time.time() + 3
        while not quic._retry_count and time.time() < until:
            await asyncio.sleep(0.02)
            for data in wire.receive():
                quic.receive_datagram(data, ("192.0.2.1", 1), now=time.time())
        for data, _ in quic.datagrams_to_send(now=time.time()):
            wire.send(data)
        quic.close(error_code=0x1, frame_type=6, reason_phrase=purpose)
        for data, _ in quic.datagrams_to_send(now=time.time()):
            wire.send(data)
        await asyncio.sleep(0.2)
    return {"said": True}


async def control(at, key, seconds):
    """Messages of the control stream, each as long as one may be or as short as one can be."""
    identity, link = await enters(at, key)
    print("begins", flush=True)
    await asyncio.sleep(0.5)
    heads = [head(os.urandom(32).hex(), 1, os.urandom(32)) for _ in range(400)]
    sent, until = 0, time.time() + seconds
    try:
        while time.time() < until:
            for number in range(50):
                tell(link, "logs", held(link, "tell", None, heads[:200]))
                tell(link, "logs", held(link, "ask", os.urandom(16)))
                tell(link, "index", {"epoch": sent, "version": sent, "root": os.urandom(32)})
                tell(link, "index_report", {"refused": sent, "examples": [{"entry": str(sent), "reason": "x"}]})
                tell(link, "addresses", {"nodes": []})
                sent += 5
            await link.drained(1 << 18)
            await asyncio.sleep(0)
    except (Gone, AssertionError):
        pass
    return {"messages": sent, "open": not link.ended.is_set()}


async def packets(at, key, seconds):
    """Datagrams as fast as they go, and long ones on streams."""
    identity, link = await enters(at, key)
    print("begins", flush=True)
    sent, until = 0, time.time() + seconds
    while time.time() < until and not link.ended.is_set():
        for _ in range(50):
            link._quic.send_datagram_frame(os.urandom(1100))
            sent += 1
        link.transmit()
        await asyncio.sleep(0.001)
        while len(link._quic._datagrams_pending) > 500 and not link.ended.is_set():
            await asyncio.sleep(0.002)
    return {"packets": sent, "open": not link.ended.is_set()}


async def streams(at, key, seconds):
    """Streams that are opened and never written, begun and never ended, announced and never filled, too long."""
    identity, link = await enters(at, key)
    print("begins", flush=True)
    await asyncio.sleep(0.5)
    header = words.write(words.header("demo", os.urandom(16), None, left_ms=24 * 3600 * 1000))
    frame = lambda kind, body: bytes([kind]) + len(body).to_bytes(4, "big") + body
    for number in range(60):
        stream = link.open(CALL)
        if number % 4 == 1:
            link.write(stream, frame(HEADER, header)[:20])
        elif number % 4 == 2:
            link.write(stream, frame(HEADER, header) + bytes([PARAMS]) + (16 << 20).to_bytes(4, "big"))
        elif number % 4 == 3:
            link.write(stream, frame(HEADER, header) + bytes([PARAMS]) + b"\xff\xff\xff\xff" + bytes(1000))
    for number in range(10):
        link.write(link.open(SYNC), b"\x01" + (1 << 20).to_bytes(4, "big") + b"x")
        link.write(link.open(99), bytes(1000))
        link.write(link.open(None), b"")
        link.write(link.open(one_way=True), b"x")
    link.transmit()
    # Twelve bodies of 16 MiB, a little of each at a time.
    whole = []
    for _ in range(12):
        stream = link.open(CALL)
        link.write(stream, frame(HEADER, header) + bytes([PARAMS]) + (16 << 20).to_bytes(4, "big"))
        whole.append(stream)
    until = time.time() + seconds
    try:
        while time.time() < until:
            for stream in whole:
                if not link.streams[stream].ended:
                    link._quic.send_stream_data(stream, bytes(64 << 10))
            link.transmit()
            await link.drained(1 << 20)
            await asyncio.sleep(0.001)
    except (Gone, AssertionError, ValueError):
        pass
    ended = sum(stream.ended for stream in link.streams.values())
    return {"streams": len(link.streams), "ended": ended, "open": not link.ended.is_set()}


async def identifiers(at, key, seconds):
    """Connection ids, keys and ports that change without end."""
    identity, link = await enters(at, key)
    print("begins", flush=True)
    changed, until = 0, time.time() + seconds
    while time.time() < until and not link.ended.is_set():
        link.change_connection_id()
        if changed % 10 == 0:
            try:
                link.request_key_update()
            except AssertionError:
                pass
        changed += 1
        try:
            await asyncio.wait_for(link.ping(), 2)
        except (asyncio.TimeoutError, ConnectionError):
            break
    still = not link.ended.is_set()
    # The same connection from another port: it stays where it was proven to be.
    loop = asyncio.get_running_loop()
    old = link._transport
    moved, _ = await loop.create_datagram_endpoint(lambda: Moved(link), local_addr=("0.0.0.0", 0))
    link._transport = moved
    pinged = asyncio.ensure_future(link.ping())
    done, _ = await asyncio.wait([pinged], timeout=1.5)
    link._transport = old
    return {"changed": changed, "open": still, "followed": bool(done) and not pinged.exception()}


class Moved(asyncio.DatagramProtocol):
    """Another port of the same connection."""

    def __init__(self, link):
        self.link = link

    def datagram_received(self, data, at):
        self.link.datagram_received(data, at)


async def again(at, key, seconds):
    """Links that are made and left, one after the other, from a new port each."""
    identity = Identity.of_file(key)
    print("begins", flush=True)
    made, until = 0, time.time() + seconds
    while time.time() < until:
        try:
            link = await greet(at, identity)
            link.close()
            link.transmit()
            link.udp.close()
            made += 1
        except (Gone, ConnectionError, asyncio.TimeoutError):
            pass
    return {"links": made}


async def forgeries(at, key, seconds):
    """Entries whose signatures do not hold, on as many streams as there are."""
    identity, link = await enters(at, key)
    print("begins", flush=True)
    await asyncio.sleep(0.5)
    cluster = os.urandom(32).hex()
    bad = [words.operation(identity, cluster, n, words.grant(identity.node, "agent.a", identity.node, "x"))[1] for n in range(100)]
    for n, entry in enumerate(bad):
        read = words.read(entry)
        read["signature"] = os.urandom(64)
        bad[n] = words.write(read)
    brought, until = 0, time.time() + seconds

    async def stream():
        nonlocal brought
        while time.time() < until and not link.ended.is_set():
            await bring(link, *bad)
            brought += len(bad)

    await asyncio.gather(*(stream() for _ in range(7)))
    return {"entries": brought, "open": not link.ended.is_set()}
