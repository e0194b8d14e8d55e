"""Values of TFF types as TensorFlow tensors, and the way in from and out to Python.

A value of a tensor type is a tensor, of a sequence type the variant tensor of a
dataset, of a structure type a tuple of values. Which type a value has is always known
from the computation, so values carry no names.
"""

import collections
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

# What draws by a generator of seeds, its last input.
_SEEDED = frozenset(
    ("RandomDatasetV2", "ShuffleAndRepeatDatasetV2", "ShuffleDatasetV3")
)


def flatten(value: Any, type_: tff.Type | None) -> list[tf.Tensor]:
    """Returns the tensors of a value, depth first."""
    if type_ is None:
        return []
    if isinstance(type_, tff.StructType):
        return [
            tensor
            for part, part_type in zip(value, type_, strict=True)
            for tensor in flatten(part, part_type)
        ]
    return [value]


def unflatten(tensors: Iterable[tf.Tensor], type_: tff.Type) -> Any:
    """Takes the tensors of a value of type `type_` and returns it, undoing flatten."""
    tensors = iter(tensors)
    if isinstance(type_, tff.StructType):
        return tuple(unflatten(tensors, part) for part in type_)
    return next(tensors)


@functools.lru_cache(maxsize=1024)
def leaves(type_: tff.Type) -> tuple[tff.Type, ...]:
    """Returns the type behind each tensor of a value of type `type_`."""
    if isinstance(type_, tff.StructType):
        return tuple(leaf for part in type_ for leaf in leaves(part))
    return (type_,)


def tensor_specs(type_: tff.Type) -> list[tf.TensorSpec]:
    """Returns the dtype and shape of each tensor of a value of type `type_`.

    Raises:
      TypeError: If such a value is not made of tensors.
    """
    if isinstance(type_, tff.StructType):
        return [spec for part in type_ for spec in tensor_specs(part)]
    if isinstance(type_, tff.SequenceType):
        return [tf.TensorSpec([], tf.variant)]
    if isinstance(type_, tff.TensorType):
        return [tf.TensorSpec(type_.shape, type_.dtype)]
    raise TypeError(f"a value of type {type_} is not made of tensors")


def to_element(value: Any, type_: tff.Type) -> Any:
    """Returns a value as tf.data and TFF spell it: a dict if named, else a tuple.

    Raises:
      TypeError: If some parts of it are named and others are not.
    """
    if not isinstance(type_, tff.StructType):
        return value
    names = tff.structure.name_list(type_)
    parts = [to_element(*pair) for pair in zip(value, type_, strict=True)]
    if not names:
        return tuple(parts)
    if len(names) < len(parts):
        raise TypeError(
            f"tf.data elements have all fields named or none, found the type {type_}"
        )
    return collections.OrderedDict(zip(names, parts, strict=True))


def from_element(element: Any, type_: tff.Type) -> Any:
    """Returns an element of a dataset as a value, the inverse of to_element."""
    if not isinstance(type_, tff.StructType):
        return element
    if isinstance(element, Mapping):
        element = [element[name] for name in tff.structure.name_list(type_)]
    return tuple(from_element(*pair) for pair in zip(element, type_, strict=True))


def element_spec(type_: tff.Type) -> Any:
    """Returns the `tf.data` element specification of elements of type `type_`."""
    return to_element(unflatten(tensor_specs(type_), type_), type_)


def to_dataset(variant: tf.Tensor, element: tff.Type) -> tf.data.Dataset:
    """Returns the dataset behind the value of a sequence of `element`."""
    return tf.data.experimental.from_variant(variant, element_spec(element))


def ingest(value: Any, type_: tff.Type, *, listed: bool = False) -> Any:
    """Turns what a caller passed for a parameter into a value of eager tensors.

    Args:
      value: A scalar, array, tensor, variable, dataset, list of a dataset's
        elements, or a Python structure of them.
      type_: The type of the parameter, without placements.
      listed: Whether `value` is an element of such a list. TFF then takes numbers
        of other dtypes too; here those that keep their value.

    Raises:
      TypeError: If `value` is not of type `type_`.
    """
    if isinstance(type_, tff.StructType):
        return tuple(
            ingest(part, part_type, listed=listed)
            for part, part_type in matched(value, type_, by_name=listed)
        )
    if isinstance(type_, tff.SequenceType):
        return _ingest_sequence(value, type_)
    if isinstance(type_, tff.TensorType):
        return _ingest_tensor(value, type_, listed)
    raise TypeError(f"an argument of type {type_} cannot be passed from Python")


def export(value: Any, type_: tff.Type) -> Any:
    """Turns an eager tensor into NumPy, or a dataset.

    Returns:
      A NumPy scalar or array (bytes for a string), or a `tf.data.Dataset`.
    """
    if isinstance(type_, tff.SequenceType):
        return to_dataset(value, type_.element)
    return value.numpy()


def matched(
    value: Any, type_: tff.StructType, *, by_name: bool = False
) -> Iterator[tuple[Any, tff.Type]]:
    """Pairs the parts of a Python container with the fields of a structure type.

    Args:
      value: The container.
      type_: The type.
      by_name: Whether a mapping's parts may come in any order.

    Raises:
      TypeError: If the container has other parts than the type has fields.
    """
    if by_name and isinstance(value, Mapping):
        names = tff.structure.name_list_with_nones(type_)
        if set(value) == set(names):
            value = collections.OrderedDict((name, value[name]) for name in names)
    # Most come as results are given out; TFF's own way takes a good part of a little
    # round.
    plain = _parts_of_plain(value, _names(type_))
    if plain is not None:
        yield from zip(plain, type_, strict=True)
        return
    try:
        parts = tff.structure.from_container(value)
    except TypeError:
        raise TypeError(
            f"expected a structure of type {type_}, found a {type(value).__name__}"
        ) from None
    if len(parts) != len(type_):
        raise TypeError(
            f"expected a structure of {len(type_)} elements of type {type_}, found "
            f"{len(parts)} elements in {value!r}"
        )
    elements = map(tff.structure.iter_elements, (parts, type_))
    for (found, part), (expected, part_type) in zip(*elements, strict=True):
        if found not in (None, expected):
            raise TypeError(
                f"expected a structure of type {type_} with an element {expected!r}, "
                f"found {found!r} in its place"
            )
        yield part, part_type


@functools.lru_cache(maxsize=1024)
def _names(type_: tff.StructType) -> tuple[str | None, ...]:
    return tuple(tff.structure.name_list_with_nones(type_))


def _parts_of_plain(value: Any, names: tuple[str | None, ...]) -> Iterable[Any] | None:
    """The parts of a plain container that has `names`; None of others.

    A dictionary, list or tuple, named or not, or an object of an attrs class.
    """
    if isinstance(value, tuple) and getattr(value, "_fields", None) == names:
        return value
    fields = getattr(type(value), "__attrs_attrs__", ())
    if fields and tuple(field.name for field in fields) == names:
        return [getattr(value, name) for name in names]
    if type(value) in (dict, collections.OrderedDict) and tuple(value) == names:
        return value.values()
    if type(value) in (list, tuple) and len(value) == len(names):
        return value
    return None


def _ingest_tensor(value: Any, type_: tff.TensorType, listed: bool) -> tf.Tensor:
    if isinstance(value, tf.Variable):
        value = value.read_value()
    if isinstance(value, tf.Tensor):
        found = tff.TensorType(
            np.str_ if value.dtype == tf.string else value.dtype.as_numpy_dtype,
            value.shape.as_list(),
        )
        if type_.is_assignable_from(found):
            return value
        value = value.numpy()
    wanted, array = type_.dtype.type, np.asarray(value)
    is_exact = (array.dtype, array.shape) == (type_.dtype, type_.shape)
    if is_exact and isinstance(value, np.ndarray | np.generic):
        return tf.constant(array)
    is_text = wanted is np.str_ and array.dtype.kind in "SU"
    is_whole = isinstance(value, bytes | str)
    is_whole = is_whole or (listed and not isinstance(value, np.ndarray))
    if is_text and is_whole:
        # An array of bytes or text has lost zeros at its end, which TFF then keeps.
        array = np.asarray(value, object)
    compatible = array.size == 0 or _is_castable(array, value, wanted)
    compatible = compatible or (listed and _keeps_value(array, wanted))
    if not compatible:
        raise TypeError(
            f"expected a value of type {type_}, found one of dtype {array.dtype}: "
            f"{_shortened(value)}"
        )
    if not tf.TensorShape(type_.shape).is_compatible_with(array.shape):
        raise TypeError(
            f"expected a value of type {type_}, found one of shape {array.shape}: "
            f"{_shortened(value)}"
        )
    return tf.constant(array, dtype=tf.as_dtype(type_.dtype))


def _is_castable(array: np.ndarray, value: Any, wanted: type[np.generic]) -> bool:
    """Whether TFF would pass `array`, made from `value`, without loss."""
    if wanted is np.str_:
        return array.dtype.kind in "SUO"
    kinds = {"u": "i"}
    kind, wanted_kind = array.dtype.kind, np.dtype(wanted).kind
    if kinds.get(kind, kind) != kinds.get(wanted_kind, wanted_kind):
        return False
    if isinstance(value, np.ndarray | np.generic):
        return np.can_cast(array.dtype, wanted)
    # Python's numbers have no width of their own: their size decides.
    extremes = (ufunc.reduce(array, None) for ufunc in (np.fmin, np.fmax))
    return all(np.can_cast(extreme.item(), wanted) for extreme in extremes)


def _keeps_value(array: np.ndarray, wanted: type[np.generic]) -> bool:
    """Whether numbers are the same in another dtype, but for a float's last digits."""
    kind, wanted_kind = array.dtype.kind, np.dtype(wanted).kind
    if kind in "iu" and wanted_kind in "iu":
        limits = np.iinfo(wanted)
        return int(array.min()) >= limits.min and int(array.max()) <= limits.max
    if kind not in "iuf" or wanted_kind != "f":
        return False
    finite = array[np.isfinite(array)]
    return bool(np.all(np.abs(finite) <= np.finfo(wanted).max))


def _shortened(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _ingest_sequence(value: Any, type_: tff.SequenceType) -> tf.Tensor:
    with tf.device("/device:CPU:0"):
        if isinstance(value, list):
            value = _dataset_of(value, type_.element)
        if not isinstance(value, tf.data.Dataset):
            raise TypeError(
                f"expected a tf.data.Dataset or a list for the type {type_}, found a "
                f"{type(value).__name__}"
            )
        spec = value.element_spec
        found = tff.SequenceType(_element_type(spec))
        if not type_.is_assignable_from(found):
            raise TypeError(f"expected a dataset of type {type_}, found one of {found}")
        if not _is_plain(spec) and _places(spec) != _expected_places(type_.element):
            raise TypeError(
                f"expected a dataset of type {type_}, found one whose named elements "
                "lie in another order, as those of named tuples and attrs classes may; "
                "map them to collections.OrderedDict"
            )
        variant = tf.data.experimental.to_variant(value)
        return _started_over(variant) if _draws_by_seed(value) else variant


def _element_type(spec: Any) -> tff.Type:
    """The type of a dataset's elements, which TFF finds anew for every dataset."""
    if type(spec) is collections.OrderedDict:
        parts = tuple(spec.items())
        if all(isinstance(part, tf.TensorSpec) for _, part in parts):
            return _type_of_parts(parts)
    return tff.types.tensorflow_to_type(spec)


@functools.lru_cache(maxsize=1024)
def _type_of_parts(parts: tuple[tuple[str, tf.TensorSpec], ...]) -> tff.Type:
    return tff.types.tensorflow_to_type(collections.OrderedDict(parts))


def _is_plain(spec: Any) -> bool:
    """Whether tf.data and TFF agree on the order of all parts of an element."""
    if type(spec) in (dict, collections.OrderedDict):
        return all(map(_is_plain, spec.values()))
    if type(spec) is tuple:
        return all(map(_is_plain, spec))
    return isinstance(spec, tf.TensorSpec)


def _places(spec: Any) -> list[int]:
    """At which place among a dataset's tensors each part of its elements lies."""
    count = len(tf.nest.flatten(spec))
    places = tf.nest.pack_sequence_as(spec, range(count))
    if isinstance(spec, tf.TensorSpec):
        return [places]
    return tff.structure.flatten(tff.structure.from_container(places, recursive=True))


@functools.lru_cache(maxsize=128)
def _expected_places(type_: tff.Type) -> list[int]:
    return _places(element_spec(type_))


def _draws_by_seed(dataset: tf.data.Dataset) -> bool:
    seeds = (getattr(dataset, name, None) for name in ("_seed", "_seed2"))
    if any(seed is not None and int(seed) for seed in seeds):
        return True
    return any(map(_draws_by_seed, dataset._inputs()))


def _started_over(variant: tf.Tensor) -> tf.Tensor:
    """Returns a copy of a dataset whose seeded shuffles give their first order.

    TFF ships datasets anew for every use, and so they always start over. The eager
    object would go on where the last use left it: its generator is given up here.
    """
    graph = tf.compat.v1.GraphDef.FromString(
        tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()
    )
    for node in tuple(graph.node):
        if node.op in _SEEDED:
            node.input[-1] = f"{node.name}/fresh_generator"
            graph.node.add(name=node.input[-1], op="DummySeedGenerator")
    return tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())


def _dataset_of(elements: list[Any], type_: tff.Type) -> tf.data.Dataset:
    """Returns a dataset of explicit elements, whose shapes may differ."""
    specs = tensor_specs(type_)
    rows = [flatten(ingest(element, type_, listed=True), type_) for element in elements]
    columns = [[row[i] for row in rows] for i in range(len(specs))]
    try:
        slices = tuple(
            tf.stack(column) if column else tf.zeros([0, *_known(spec)], spec.dtype)
            for column, spec in zip(columns, specs, strict=True)
        )
        dataset = tf.data.Dataset.from_tensor_slices(slices)
    except tf.errors.InvalidArgumentError:
        dataset = tf.data.Dataset.from_tensors(tuple(rows[0]))
        for row in rows[1:]:
            dataset = dataset.concatenate(tf.data.Dataset.from_tensors(tuple(row)))

    @tf.autograph.experimental.do_not_convert
    def element(*row: tf.Tensor) -> Any:
        return to_element(unflatten(row, type_), type_)

    return dataset.map(element)


def _known(spec: tf.TensorSpec) -> list[int]:
    return [size or 0 for size in spec.shape]
