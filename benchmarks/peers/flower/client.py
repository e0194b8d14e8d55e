"""What a Flower client does; a module of its own, which Ray's actors import."""

import functools

import torch
import works
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peers import torch_network

WEIGHT = "weight"


def build_client_app(work: works.Work) -> ClientApp:
    """Local training of the work's clients."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return _train(work, message, context)

    return app


@functools.cache
def _network(work: works.Work) -> torch_network.Network:
    """Built once an actor."""
    torch.set_num_threads(1)
    return torch_network.Network(work)


# An actor keeps its clients' examples, as it would a data set opened once.
_client_tensors = functools.cache(torch_network.client_tensors)


def _train(work: works.Work, message: Message, context: Context) -> Message:
    client = int(context.node_config["partition-id"])
    network = _network(work)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=work.learning_rate)
    x, y = _client_tensors(work, client)
    for _ in range(work.epochs):
        batches = zip(x.split(work.batch_size), y.split(work.batch_size), strict=True)
        for features, labels in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(features), labels)
            loss.backward()
            optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(network.state_dict()),
            # Every client counts the same: the noise is for that.
            "metrics": MetricRecord({WEIGHT: 1}),
        }
    )
    return Message(content=content, reply_to=message)
