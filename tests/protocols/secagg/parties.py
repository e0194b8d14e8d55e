"""Parties of a round of secure aggregation, for its tests."""


def shared(server, clients):
    """By client what it is told of who shared, once all have advertised and shared."""
    for client in clients.values():
        server.receive(client.advertise())
    for name, message in server.end_advertise().items():
        server.receive(clients[name].share(message))
    return server.end_share()
