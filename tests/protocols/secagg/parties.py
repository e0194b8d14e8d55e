"""Parties of a round of secure aggregation, for its tests."""

import numpy as np


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
