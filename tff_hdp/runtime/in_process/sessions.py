"""Graphs whose state exists only by name, such as queues: each call gets a session."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_hdp.runtime.in_process.graphs import SessionGraph


class SessionCall:
    """A TensorFlow computation that a function being traced calls in a new session.

    Slower than inlining by the time it takes to set up a session, and on the CPU, but
    nothing is shared with other calls whatever the graph does.
    """

    def __init__(
        self,
        source: SessionGraph,
        arguments: Sequence[tf.TensorSpec],
        results: Sequence[tf.TensorSpec],
    ) -> None:
        """Prepares the graph."""
        self._specs = list(results)
        self._initialise = source.initialise
        self._graph = tf.Graph()
        with self._graph.as_default():
            fed, self._feeds = {}, []
            for name, spec in zip(source.inputs, arguments, strict=True):
                # Datasets cross the border as serialised graphs.
                if spec.dtype == tf.variant:
                    feed = tf.compat.v1.placeholder(tf.string, [])
                    fed[name] = tf.raw_ops.DatasetFromGraph(graph_def=feed)
                else:
                    feed = fed[name] = tf.compat.v1.placeholder(spec.dtype, spec.shape)
                self._feeds.append(feed)
            if source.token:
                fed[source.token] = tf.constant(b"in_process")
            fetches = tf.graph_util.import_graph_def(
                _unoptimised(source.graph), fed, source.fetches, name=""
            )
            self._fetches = [
                tf.raw_ops.DatasetToGraphV2(input_dataset=fetch)
                if fetch.dtype == tf.variant
                else fetch
                for fetch in fetches
            ]

    def inline(self, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Adds a call to the function being traced.

        Args:
          arguments: The tensors of the argument; a sequence is its variant.

        Returns:
          The tensors of the result.
        """
        with tf.device("/device:CPU:0"):
            feeds = [
                tf.raw_ops.DatasetToGraphV2(input_dataset=argument)
                if argument.dtype == tf.variant
                else argument
                for argument in arguments
            ]
            fetched = tf.numpy_function(
                self._run, feeds, [fetch.dtype for fetch in self._fetches]
            )
            tensors = []
            for tensor, spec in zip(fetched, self._specs, strict=True):
                if spec.dtype == tf.variant:
                    tensor = tf.raw_ops.DatasetFromGraph(graph_def=tensor)
                tensors.append(tf.ensure_shape(tensor, spec.shape))
            return tensors

    def _run(self, *arguments: np.ndarray) -> list[np.ndarray]:
        feeds = dict(zip(self._feeds, arguments, strict=True))
        with tf.compat.v1.Session(graph=self._graph, config=_config()) as session:
            if self._initialise:
                session.run(self._initialise, feeds)
            return session.run(self._fetches, feeds)


def _config() -> tf.compat.v1.ConfigProto:
    """To optimise a graph that runs once takes longer than to run it as it is."""
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def _unoptimised(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """A copy whose calls of functions say the same; a session's word is not theirs."""
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph)
    config = _config().SerializeToString()
    for nodes in (copy.node, *(f.node_def for f in copy.library.function)):
        for node in nodes:
            if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
                node.attr["config_proto"].s = config
    return copy
