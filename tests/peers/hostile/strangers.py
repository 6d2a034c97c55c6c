"""Who has no key of the cluster, or only says so."""

import asyncio

from cryptography.hazmat.primitives.asymmetric import ec

from identity import Identity, certificate_of
from link import CONTROL, LINK, MESSAGE, PAIR, Gone, dial, greet

import words


async def outcome(attempt):
    """How an attempt ended: `taken`, or why not."""
    try:
        await asyncio.wait_for(attempt, 8)
        return "taken"
    except (Gone, ConnectionError) as why:
        return f"refused {getattr(why.args[0] if why.args else why, 'error_code', why)}"
    except asyncio.TimeoutError:
        return "refused silently"


class Shown(Identity):
    """Shows a certificate that is not that of its key."""

    def __init__(self, certificate):
        super().__init__()
        self.certificate = certificate


async def certificate_at(at):
    """The certificate of whoever listens there: it is shown to everybody."""
    link = await dial(at, Identity())
    return link._quic.tls._peer_certificate


async def keys(at, other, member):
    """All who come without the right key, and one who has it; `other` is where a member listens, `member` the file of the
    key of another one."""
    borrowed = await certificate_at(other)
    signed_by_other = Identity()
    signed_by_other.certificate = certificate_of(borrowed.public_key(), signed_by_other.key)
    curve = ec.generate_private_key(ec.SECP256R1())
    other_kind = Identity()
    other_kind.key, other_kind.certificate = curve, certificate_of(curve.public_key(), curve)
    tries = {
        "a key nobody knows": (Identity(), LINK),
        "no certificate": (None, LINK),
        "a member's certificate without its key": (Shown(borrowed), LINK),
        "a certificate of a member's key, signed by another": (signed_by_other, LINK),
        "a key of another kind": (other_kind, LINK),
        "a guest without a ticket": (Identity(), PAIR),
        "a guest and a member at once": (Shown(borrowed), [PAIR, LINK]),
        "another protocol": (Identity(), "h3"),
    }
    told = {}
    for name, (identity, alpn) in tries.items():
        told[name] = await outcome(speaks(at, identity, alpn))
    told["a key that was let in"] = await outcome(speaks(at, Identity.of_file(member), LINK))
    return told


async def speaks(at, identity, alpn):
    """Says hello and waits for one."""
    link = await dial(at, identity, alpn)
    link.control = link.open(CONTROL)
    link.say(link.control, MESSAGE, words.control("hello", words.hello("mallory", bytes(16))))
    kind, said = await link.streams[link.control].frame(6)
    link.close()
    if kind != MESSAGE or words.read(said)["kind"] != "hello":
        raise Gone(kind)
