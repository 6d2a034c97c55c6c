"""Keys and certificates of a node, good ones and bad ones."""

import datetime
import pathlib

import blake3
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class Identity:
    """A node's key, and the certificate that it shows."""

    def __init__(self, key=None):
        self.key = key or Ed25519PrivateKey.generate()
        self.certificate = certificate_of(self.key.public_key(), self.key)

    @staticmethod
    def of_file(path):
        """The key of a kernel's data folder."""
        digits = pathlib.Path(path).read_text().strip()
        return Identity(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(digits)))

    @property
    def public(self):
        return self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def node(self):
        return node_of(self.public)

    def sign(self, data):
        return self.key.sign(data)


def node_of(public):
    """The id of the node whose key this is."""
    return blake3.blake3(public, derive_key_context="mgp 2026-11 node id").digest()


def certificate_of(public, signer):
    """A certificate of one key, signed by perhaps another one."""
    nobody = x509.Name([])
    now = datetime.datetime(2026, 1, 1)
    builder = x509.CertificateBuilder().subject_name(nobody).issuer_name(nobody)
    builder = builder.public_key(public).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=3650))
    kind = hashes.SHA256() if isinstance(signer, ec.EllipticCurvePrivateKey) else None
    return builder.sign(signer, kind)
