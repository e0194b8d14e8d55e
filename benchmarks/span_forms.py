"""Other ways to train a chunk of work A in the span of its clients' examples.

    python benchmarks/span_forms.py

Each takes the steps of `tff_hdp.clients.gram`, with other tensors: `landed` reads
and writes the rows of a batch by client and row; `one index` by one number for both,
found before the first step; `blocks` gathers the rows of some steps at once, corrects
each step for those before it in the block, and writes them once. With the order of an
epoch in a block, that is what reading an epoch's examples in their order amounts to.

Processor milliseconds of one thread for a chunk, medians and least over turns.
"""

import functools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from tff_hdp import cli
from tff_hdp.errors import ArgumentError

# Of each number of an update, in shares of the largest.
_TOLERANCE = 1e-4


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_integer("turns", 25, "Of every form.", lower_bound=1)
    flags.DEFINE_integer(
        "clients", None, "Of the chunk; default: as in a round.", lower_bound=1
    )
    flags.DEFINE_integer(
        "block", 5, "Steps of a block; a divisor of the steps.", lower_bound=1
    )


def main() -> int:
    """Prints a line for each form."""
    f = flags.FLAGS
    import machine
    import tensorflow as tf
    import works

    machine.hide_gpus()
    steps = works.WORKS["A"].steps
    if steps % f.block:
        raise ArgumentError("block", f.block, f"a divisor of {steps}")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print(machine.described("cpu"))
    forms = _forms(f.clients, f.block)
    _check(forms)
    spent = {name: [] for name in forms}
    for _ in range(f.turns):
        for name, form in forms.items():
            began = time.process_time()
            form()
            spent[name].append(1e3 * (time.process_time() - began))
    for name, own in spent.items():
        print(
            f"{name:12} median {statistics.median(own):6.1f} ms, least {min(own):6.1f}"
        )
    return 0


def _check(forms: dict[str, Callable[[], Any]]) -> None:
    """Runs every form once; ends the program where two give other updates."""
    landed, *others = ([u.numpy() for u in form()] for form in forms.values())
    scale = max(np.abs(update).max() for update in landed)
    for other in others:
        for ours, theirs in zip(landed, other, strict=True):
            if not np.abs(ours - theirs).max() <= _TOLERANCE * scale:
                sys.exit("the forms give different updates")


class _Span(NamedTuple):
    """A chunk as its products: what all forms begin with.

    Attributes:
      model: The model, stacked.
      rule: How clients descend.
      initial: The weights sent.
      examples: [C, N, d].
      gram: Products of a client's examples, [C * N, N].
      products: Of the examples with the first kernel, [C * N, h].
      labels: [C * N].
      rows: [C, steps, B], of a client's own N.
      offsets: Where each client's rows begin among all, [C, 1].
    """

    model: Any
    rule: Any
    initial: Sequence[Any]
    examples: Any
    gram: Any
    products: Any
    labels: Any
    rows: Any
    offsets: Any

    def step(
        self, others: Sequence[Any], products: Any, labels: Any
    ) -> tuple[Any, list[Any]]:
        """What the first layer's products of a batch are to lose, and the others."""
        import tensorflow as tf

        from tff_hdp.clients.sgd import Batch

        present = tf.ones_like(labels, products.dtype)
        batch = Batch(labels, labels, present, self.rule.learning_rate)
        with tf.GradientTape() as tape:
            tape.watch([products, *others])
            loss, _ = batch.loss(self.model.from_first_dense(others, products))
        first, *rest = tape.gradient(loss, [products, *others])
        return first, [a - b for a, b in zip(others, rest, strict=True)]

    def start(self) -> tuple[Any, list[Any]]:
        """A, [C * N, h], and each client's other weights."""
        import tensorflow as tf

        clients = self.rows.shape[0]
        others = [tf.stack([weight] * clients) for weight in self.initial[1:]]
        return tf.zeros_like(self.products), others

    def updates(self, coordinates: Any, others: Sequence[Any]) -> list[Any]:
        """Each client's updates, per weight [C, ...]."""
        import tensorflow as tf

        clients, n, _ = self.examples.shape
        own = tf.reshape(coordinates, [clients, n, -1])
        first = tf.matmul(self.examples, -own, transpose_a=True)
        pairs = zip(self.initial[1:], others, strict=True)
        return [first, *(sent - trained for sent, trained in pairs)]


def _by_one_index(span: _Span) -> list[Any]:
    import tensorflow as tf

    clients, steps, batch = span.rows.shape
    n, h = span.gram.shape[1], span.products.shape[1]
    numbers = tf.transpose(span.rows + span.offsets[:, tf.newaxis], [1, 0, 2])
    numbers = tf.reshape(numbers, [steps, -1])
    labels = tf.gather(span.labels, numbers)

    def step(t: Any, coordinates: Any, others: Any) -> Any:
        own = tf.reshape(tf.gather(span.gram, numbers[t]), [clients, batch, n])
        products = tf.gather(span.products, numbers[t])
        products = tf.reshape(products, [clients, batch, h])
        products += tf.matmul(own, tf.reshape(coordinates, [clients, n, h]))
        asked = tf.reshape(labels[t], [clients, batch])
        first, others = span.step(others, products, asked)
        coordinates = tf.tensor_scatter_nd_sub(
            coordinates, numbers[t][:, tf.newaxis], tf.reshape(first, [-1, h])
        )
        return t + 1, coordinates, others

    _, coordinates, others = tf.while_loop(
        lambda t, *_: t < steps, step, (0, *span.start())
    )
    return span.updates(coordinates, others)


def _by_blocks(span: _Span, *, block: int) -> list[Any]:
    import tensorflow as tf

    clients, steps, batch = span.rows.shape
    n, h = span.gram.shape[1], span.products.shape[1]

    def few_steps(t: Any, coordinates: Any, others: Any) -> Any:
        rows = tf.reshape(span.rows[:, t : t + block], [clients, block * batch])
        numbers = tf.reshape(rows + span.offsets, [-1])
        own = tf.reshape(tf.gather(span.gram, numbers), [clients, -1, n])
        products = tf.reshape(tf.gather(span.products, numbers), [clients, -1, h])
        products += tf.matmul(own, tf.reshape(coordinates, [clients, n, h]))
        among = tf.gather(own, rows, axis=2, batch_dims=1)
        labels = tf.reshape(tf.gather(span.labels, numbers), [clients, -1])
        taken = []
        for first in range(0, block * batch, batch):
            here = slice(first, first + batch)
            own_products = products[:, here]
            if taken:
                before = among[:, here, :first]
                own_products -= tf.matmul(before, tf.concat(taken, 1))
            step, others = span.step(others, own_products, labels[:, here])
            taken.append(step)
        coordinates = tf.tensor_scatter_nd_sub(
            coordinates,
            numbers[:, tf.newaxis],
            tf.reshape(tf.concat(taken, 1), [-1, h]),
        )
        return t + block, coordinates, others

    _, coordinates, others = tf.while_loop(
        lambda t, *_: t < steps, few_steps, (0, *span.start())
    )
    return span.updates(coordinates, others)


def _forms(clients: int | None, block: int) -> dict[str, Callable[[], Any]]:
    """By name, functions that train one chunk and give its updates."""
    import tensorflow as tf
    import works
    from programs import tensorflow_model

    from tff_hdp.clients import training
    from tff_hdp.clients.sgd import SgdRule
    from tff_hdp.clients.stacked_model import StackedModel

    work = works.WORKS["A"]
    model = StackedModel.built_by(lambda: tensorflow_model.build_model(work))
    clients = clients or training.chunk_size(model, work.clients)
    rule = SgdRule(learning_rate=work.learning_rate)
    initial = [tf.constant(weight) for weight in works.initial_weights(work)]
    given = [works.client_examples(work, client) for client in range(clients)]
    features, labels = map(np.stack, zip(*given, strict=True))
    rng = np.random.default_rng(0)
    orders = [
        [rng.permutation(work.examples) for _ in range(work.epochs)] for _ in given
    ]
    order = np.reshape(orders, [clients, work.steps, work.batch_size]).astype(np.int32)

    def landed(features: Any, labels: Any, rows: Any) -> list[Any]:
        chunk = {"features": features, "labels": labels, "order": rows}
        return training.train_stack(model, initial, chunk, rule)[0]

    def spanned(form: Callable[[_Span], Any], *tensors: Any) -> list[Any]:
        features, labels, rows = tensors
        examples = model.to_first_dense(features, tf.float32)
        count, n, d = examples.shape
        gram = tf.matmul(examples, examples, transpose_b=True)
        return form(
            _Span(
                model=model,
                rule=rule,
                initial=initial,
                examples=examples,
                gram=tf.reshape(gram, [count * n, n]),
                products=tf.matmul(tf.reshape(examples, [-1, d]), initial[0]),
                labels=tf.reshape(labels, [-1]),
                rows=rows,
                offsets=n * tf.range(count)[:, tf.newaxis],
            )
        )

    functions = {
        "landed": landed,
        "one index": functools.partial(spanned, _by_one_index),
        "blocks": functools.partial(
            spanned, functools.partial(_by_blocks, block=block)
        ),
    }
    tensors = tuple(map(tf.constant, (features, labels, order)))
    return {
        name: functools.partial(tf.function(function, autograph=False), *tensors)
        for name, function in functions.items()
    }


if __name__ == "__main__":
    sys.exit(cli.run(main, define_flags))
