"""Parties of a round of secure aggregation, for its tests."""

import numpy as np

from tff_hdp.protocols.secagg.client import Client
from tff_hdp.protocols.secagg.messages import Round
from tff_hdp.protocols.secagg.server import Server

NAMES = ("a", "b", "c", "d")
TERMS = Round(5, 3, 32, 3)


def shared(server, clients):
    """By client what it is told of who shared, once all have advertised and shared."""
    for client in clients.values():
        server.receive(client.advertise())
    for name, message in server.end_advertise().items():
        server.receive(clients[name].share(message))
    return server.end_share()


def masked(server, clients):
    """By client what it is told of who survived, once all have masked zeros."""
    got = shared(server, clients)
    if server.phase == "settle":
        for name, message in got.items():
            server.receive(clients[name].settle(message))
        got = server.end_settle()
    for name, message in got.items():
        server.receive(clients[name].mask(message, np.zeros(2, np.uint32)))
    return server.end_mask()


class Running:
    """A round of four clients that can be taken step by step."""

    def __init__(self, terms=TERMS):
        self.server = Server(terms, NAMES)
        self.clients = {name: Client(name, terms) for name in NAMES}
        self.inputs = {n: np.full(3, i, np.uint32) for i, n in enumerate(NAMES)}
        self.keys = {n: c.advertise() for n, c in self.clients.items()}

    def advertise(self, names=NAMES):
        for name in names:
            self.server.receive(self.keys[name])
        self.peer_keys = self.server.end_advertise()
        return self

    def share(self, names=NAMES):
        self.shares = {n: self.clients[n].share(self.peer_keys[n]) for n in names}
        return self

    def deliver(self, names=NAMES):
        for name in names:
            if name not in self.server._received["share"]:
                self.server.receive(self.shares[name])
        self.delivered = self.server.end_share()
        return self

    def mask(self, names=NAMES):
        self.masked = {
            n: self.clients[n].mask(self.delivered[n], self.inputs[n]) for n in names
        }
        return self

    def collect(self, names=NAMES):
        for name in names:
            if name not in self.server._received["mask"]:
                self.server.receive(self.masked[name])
        self.survivors = self.server.end_mask()
        return self

    def unmask(self, names=NAMES):
        self.answers = {n: self.clients[n].unmask(self.survivors[n]) for n in names}
        return self

    def finish(self, names=NAMES):
        for name in names:
            if name not in self.server._received["unmask"]:
                self.server.receive(self.answers[name])
        return self.server.end_unmask()
