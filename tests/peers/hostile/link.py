"""A link to a kernel, as bare as it can be: QUIC by aioquic, frames by hand."""

import asyncio
import os
import ssl

from aioquic import tls
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

import words

LINK, PAIR = "mgp/1", "mgp-pair/1"
CONTROL, CALL, SYNC = 1, 2, 3
MESSAGE, HEADER, PARAMS, RELAYED, RESULT, ERROR, REFUSED = 1, 2, 3, 4, 5, 6, 7
# Kinds from here on are passed over by who does not know them.
OPTIONAL = 128
BINDING = b"EXPORTER-mgp-link-binding"


class Gone(Exception):
    """The other side ended the link, or the stream."""


class Stream:
    """What came in on one stream."""

    def __init__(self):
        self.data, self.ended, self.reset = bytearray(), False, None
        self.news = asyncio.Event()

    async def take(self, count):
        while len(self.data) < count:
            if self.ended:
                raise Gone(self.reset)
            self.news.clear()
            await self.news.wait()
        taken = bytes(self.data[:count])
        del self.data[:count]
        return taken

    async def frame(self, seconds=10):
        async def read():
            kind = OPTIONAL
            while kind >= OPTIONAL:
                kind, *length = await self.take(5)
                body = await self.take(int.from_bytes(length, "big"))
            return kind, body

        return await asyncio.wait_for(read(), seconds)


class Link(QuicConnectionProtocol):
    """One connection, from the side that dials."""

    def __init__(self, quic):
        super().__init__(quic)
        self.streams, self.datagrams, self.opened = {}, 0, asyncio.Queue()
        self.ended, self.why = asyncio.Event(), None
        self.exporter = None
        self._keep_exporter()

    def _keep_exporter(self):
        """aioquic keeps no exporter secret: it is derived when the keys of the application are."""
        made = self._quic._initialize

        def initialize(destination):
            made(destination)
            context = self._quic.tls
            finished = context._client_handle_finished

            def handle(*args):
                schedule = context.key_schedule
                derive = schedule.derive_secret

                def derived(label):
                    if label == b"c ap traffic":
                        self.exporter = (schedule.algorithm, derive(b"exp master"))
                    return derive(label)

                schedule.derive_secret = derived
                return finished(*args)

            context._client_handle_finished = handle

        self._quic._initialize = initialize

    @property
    def binding(self):
        """What both ends of this link know, and nobody else."""
        algorithm, master = self.exporter
        empty = tls.hashes.Hash(algorithm).finalize()
        secret = tls.hkdf_expand_label(algorithm, master, BINDING, empty, algorithm.digest_size)
        return tls.hkdf_expand_label(algorithm, secret, b"exporter", empty, 32)

    def quic_event_received(self, event):
        if isinstance(event, events.StreamDataReceived):
            stream = self._stream(event.stream_id)
            stream.data += event.data
            stream.ended |= event.end_stream
            stream.news.set()
        elif isinstance(event, events.StreamReset):
            stream = self._stream(event.stream_id)
            stream.ended, stream.reset = True, event.error_code
            stream.news.set()
        elif isinstance(event, events.DatagramFrameReceived):
            self.datagrams += 1
        elif isinstance(event, events.ConnectionTerminated):
            self.why = event
            for stream in self.streams.values():
                stream.reset = stream.reset or event.error_code
                stream.ended = True
                stream.news.set()
            self.ended.set()

    def _stream(self, number):
        if number not in self.streams:
            self.streams[number] = Stream()
            if number % 4 in (1, 3):
                self.opened.put_nowait(number)
        return self.streams[number]

    def open(self, kind=None, one_way=False):
        """A new stream; its first byte says what it is for."""
        number = self._quic.get_next_available_stream_id(is_unidirectional=one_way)
        self._stream(number)
        self._quic.send_stream_data(number, bytes([kind]) if kind is not None else b"")
        return number

    def write(self, number, data, end=False):
        self._quic.send_stream_data(number, data, end)
        self.transmit()

    def say(self, number, kind, body, end=False):
        """A frame."""
        self.write(number, bytes([kind]) + len(body).to_bytes(4, "big") + body, end)

    def packet(self, data):
        self._quic.send_datagram_frame(data)
        self.transmit()

    async def drained(self, below=1 << 20):
        """Waits until what was written is on its way, all but a rest."""
        while not self.ended.is_set():
            waiting = sum(len(s.sender._buffer) for s in self._quic._streams.values())
            if waiting < below:
                return
            await asyncio.sleep(0.005)
        raise Gone(self.why)

    async def over(self, seconds=10):
        """How the other side ended it: a code, or None while it has not."""
        try:
            await asyncio.wait_for(self.ended.wait(), seconds)
        except asyncio.TimeoutError:
            return None
        return self.why.error_code


def configuration(identity, alpn=LINK, **more):
    names = [alpn] if isinstance(alpn, str) else alpn
    made = QuicConfiguration(
        is_client=True, alpn_protocols=names, verify_mode=ssl.CERT_NONE,
        max_datagram_frame_size=65536, idle_timeout=30, max_data=1 << 26,
        max_stream_data=1 << 22, **more,
    )
    if identity:
        made.certificate, made.private_key = identity.certificate, identity.key
    return made


async def dial(at, identity, alpn=LINK, bind=None, **more):
    """A connection, as soon as this side takes its handshake for done."""
    host, port = at.rsplit(":", 1)
    quic = QuicConnection(configuration=configuration(identity, alpn, **more))
    loop = asyncio.get_running_loop()
    local = (bind or "0.0.0.0", 0)
    transport, link = await loop.create_datagram_endpoint(lambda: Link(quic), local_addr=local)
    link.udp = transport
    link.connect((host, int(port)))
    await asyncio.wait_for(link.wait_connected(), 10)
    return link


async def greet(at, identity, name="mallory", **hello):
    """A link on which both sides have said hello."""
    link = await dial(at, identity)
    link.control = link.open(CONTROL)
    link.life = hello.pop("life", None) or os.urandom(16)
    said = words.hello(name, link.life, **hello)
    link.say(link.control, MESSAGE, words.control("hello", said))
    _, body = await link.streams[link.control].frame()
    link.theirs = words.read(body)["body"]
    # Questions have to be answered, or the link is taken for dead.
    link.answering = asyncio.ensure_future(answer(link))
    return link


async def answer(link):
    """Answers pings, and keeps what else is said on the control stream."""
    link.heard = []
    stream = link.streams[link.control]
    try:
        while True:
            _, body = await stream.frame(3600)
            message = words.read(body)
            if message["kind"] == "ping":
                pong = {"nonce": message["body"]["nonce"], "wall_ms": words.now()}
                link.say(link.control, MESSAGE, words.control("pong", pong))
            else:
                link.heard.append(message)
                del link.heard[:-100]
    except Gone:
        pass


def tell(link, kind, body):
    link.say(link.control, MESSAGE, words.control(kind, body))


async def call(link, identity, owner, agent="agent.local", tool="test_simple_text", server="demo", **more):
    """Calls a tool: the kind of the last frame, and its body."""
    signed = more.pop("signed", None)
    named = more.pop("named", None)
    if signed is None and named is None:
        named, signed = words.assertion(identity, owner, link.binding, agent)
    seconds, arguments, mgp = more.pop("seconds", 20), more.pop("arguments", {}), more.pop("mgp", False)
    header = words.header(server, named, signed, **more)
    number = link.open(CALL)
    link.say(number, HEADER, words.write(header))
    link.say(number, PARAMS, words.params(tool, arguments, mgp))
    stream = link.streams[number]
    while True:
        kind, body = await stream.frame(seconds)
        if kind != RELAYED:
            return kind, words.read(body) if kind == REFUSED else body.decode()
