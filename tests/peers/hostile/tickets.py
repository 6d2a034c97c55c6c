"""Tickets: used again, replayed, altered, too late; and guests that hold places."""

import asyncio
import os

from identity import Identity
from link import MESSAGE, PAIR, Gone, dial
import words


async def guest(at, ticket, identity, proof=None, number=None, raw=None, bind=None):
    """Shows a ticket: the bytes that were said, and the first answer."""
    link = await dial(at, identity, PAIR, bind=bind)
    stream = link.open()
    secret = proof or ticket.proof(inviter(link), identity.node, link.binding)
    ask = {"ticket": number or ticket.id, "name": "mallory", "proof": secret}
    said = raw or words.control("ask", ask)
    link.say(stream, MESSAGE, said)
    try:
        _, body = await link.streams[stream].frame()
        return link, stream, said, words.read(body)
    except (Gone, asyncio.TimeoutError):
        code = await link.over(1)
        return link, stream, said, {"kind": "gone", "body": code}


def inviter(link):
    from identity import node_of
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    shown = link._quic.tls._peer_certificate.public_key()
    return node_of(shown.public_bytes(Encoding.Raw, PublicFormat.Raw))


def told(answer):
    return f"{answer['kind']}: {answer.get('body')!r}"[:200]


async def reuse(at, used, waiting, other):
    """`used` lets in who shows it first, `waiting` is shown and not decided, `other` only keeps the door open."""
    used, waiting = words.Ticket(used), words.Ticket(waiting)
    one, two = Identity(), Identity()
    answers = {}
    link, stream, said, answer = await guest(at, used, one)
    answers["first"] = told(answer)
    book = bytearray()
    while answer["kind"] == "heard":
        _, body = await link.streams[stream].frame()
        part = words.read(body)["body"]
        book += part["bytes"]
        if not part["more"]:
            break
    answers["welcome"] = len(book)
    link.say(stream, MESSAGE, words.write({"kind": "taken"}))
    await link.over(5)
    for name, more in {
        "used": {},
        "used, replayed": {"raw": said},
    }.items():
        answers[name] = told((await guest(at, used, two, **more))[3])
    held, _, said, answer = await guest(at, waiting, one)
    answers["second"] = told(answer)
    for name, more in {
        "shown by another": {},
        "another's proof, replayed": {"raw": said},
        "no secret": {"proof": os.urandom(32)},
        "no ticket": {"number": os.urandom(8)},
        "no message": {"raw": b"\xc1" * 64},
        "beyond the limit": {"raw": bytes(5000)},
    }.items():
        answers[name] = told((await guest(at, waiting, two, **more))[3])
    held.close()
    return answers


async def late(at, ticket):
    """A ticket whose time is over, while the door is open for another one."""
    return {"late": told((await guest(at, words.Ticket(ticket), Identity()))[3])}


async def places(at, count, seconds):
    """Guests that say nothing, each again as soon as it was sent away."""
    taken = 0

    async def silent():
        nonlocal taken
        while True:
            try:
                link = await dial(at, Identity(), PAIR, bind="127.0.0.2")
                link.write(link.open(), b"\x01")
                taken += 1
                await link.over(seconds)
            except (ConnectionError, asyncio.TimeoutError):
                pass

    tasks = [asyncio.ensure_future(silent()) for _ in range(count)]
    print("held", flush=True)
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    return {"tried": taken}
