#!/usr/bin/python3
"""librpma: READ, WRITE, FLUSH, SEND of 4 MiB between two hosts by a program of ours, both sides comparing every byte, 5 times."""
import place

ROUNDS = 5


def body(a, b):
    place.needs("cc", "/usr/include/librpma.h")
    program = place.compiled("rpma_check.c", a.folder, "-lrpma", "-libverbs")
    for number in range(ROUNDS):
        port = 7204 + number
        server = a.start([program, "server", a.ip, port])
        a.wait_rdma(port, server)
        b.run([program, "client", a.ip, port], limit_s=40, says="read: 4194304 of 4194304 bytes right\nanswer: seen")
        server.done(20, says="look: 4194304 of 4194304 bytes right")
    place.compared(f"{ROUNDS} times 4 MiB read, written, flushed")


place.main(body)
