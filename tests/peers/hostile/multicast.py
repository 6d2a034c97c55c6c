"""Announcements of nodes that are not there. Only ever run in a network namespace of a test."""

import os
import socket
import time

from scapy.layers.dns import DNS, DNSRR, DNSRRSRV

GROUP = ("224.0.0.251", 5353)
SERVICE = b"_mgp._udp.local."


def announcement(node, address, tag):
    """What one node says of itself, or somebody in its name."""
    name = os.urandom(8).hex().encode()
    whole, host = name + b"." + SERVICE, name + b".local."
    said = [b"id=" + node.encode(), b"v=1", b"c=" + tag.encode()]
    return [
        DNSRR(rrname=SERVICE, type="PTR", ttl=120, rdata=whole),
        DNSRRSRV(rrname=whole, type="SRV", ttl=120, port=7332, target=host),
        DNSRR(rrname=whole, type="TXT", ttl=120, rdata=said),
        DNSRR(rrname=host, type="A", ttl=120, rdata=address),
    ]


async def flood(local, member, each_second, seconds):
    """So many records a second; one in five nodes is called like a member."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(local))
    sender.bind((local, 5353))
    packets = []
    for number in range(300):
        records = []
        for part in range(5):
            node = member if part == 0 else os.urandom(32).hex()
            address = f"10.77.{number % 250 + 1}.{part + 100}"
            records += announcement(node, address, os.urandom(32).hex())
        packets.append(bytes(DNS(qr=1, aa=1, qd=[], an=records)))
    print("begins", flush=True)
    begun, sent = time.time(), 0
    while (spent := time.time() - begun) < seconds:
        while sent < spent * each_second:
            sender.sendto(packets[(sent // 20) % len(packets)], GROUP)
            sent += 20
        time.sleep(0.001)
    return {"records": sent, "each_second": round(sent / spent)}
