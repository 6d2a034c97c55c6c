"""A bad cable between two interfaces: frames that come out of the first are held up, lost, or let through at
once; those that come out of the second go through as they are.

UDP checksums are left out, as IPv4 allows: those of frames between machines of one system are not worked out."""

import heapq
import random
import select
import socket
import sys
import time

names, (delay, spread, lost, early) = sys.argv[1:3], map(float, sys.argv[3:7])
ETH_P_ALL, PACKET_OUTGOING, MOST = 3, 4, 20000


def opened(name):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    end.bind((name, 0))
    end.setblocking(False)
    return end


def without_checksum(frame):
    if frame[12:14] == b"\x08\x00" and frame[23] == 17:
        at = 14 + (frame[14] & 15) * 4 + 6
        return frame[:at] + b"\0\0" + frame[at + 2 :]
    return frame


def send(end, frame):
    try:
        end.send(frame)
    except OSError:
        pass  # full, or down: lost as on any cable


machine, others = map(opened, names)
waiting, number = [], 0
print("ready", flush=True)
while True:
    now = time.monotonic()
    while waiting and waiting[0][0] <= now:
        send(others, heapq.heappop(waiting)[2])
    pause = waiting[0][0] - now if waiting else 1.0
    for end in select.select([machine, others], [], [], pause)[0]:
        for _ in range(64):
            try:
                frame, of = end.recvfrom(65535)
            except OSError:
                break
            if of[2] == PACKET_OUTGOING:
                continue
            frame = without_checksum(frame)
            if end is others:
                send(machine, frame)
            elif random.random() * 100 >= lost and len(waiting) < MOST:
                hurries = random.random() * 100 < early
                held = 0 if hurries else max(0, random.gauss(delay, spread)) / 1000
                number += 1
                heapq.heappush(waiting, (time.monotonic() + held, number, frame))
