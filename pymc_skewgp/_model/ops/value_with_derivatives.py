"""An Op whose first output is a value and whose others are its derivatives, one for each input."""

import importlib
import multiprocessing
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.ops.backend_hook import import_for
from pymc_skewgp._validation import FloatArray

_NUMBA = "pymc_skewgp._model.ops.numba_dispatch"
import_for("numba", _NUMBA)
import_for("jax", "pymc_skewgp.jax")  # users may import it themselves, and need not


class ValueWithDerivatives(Op):
    """One evaluation gives the value and its gradient; the derivatives themselves have none.

    Attributes
    ----------
    quantity : str
        What the value is, for the message about second derivatives.
    input_names : tuple of str
        Names of the inputs, for messages; the last may be left out.
    gufunc_signature : str
        Their core dimensions, those that must agree by one name.
    """

    quantity: ClassVar[str]
    input_names: ClassVar[tuple[str, ...]]
    gufunc_signature: ClassVar[str]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if multiprocessing.parent_process() is not None:
            # A spawned chain compiles functions that were rewritten by its parent: the rewrite that
            # imports the implementation for numba ran there, not here.
            importlib.import_module(_NUMBA)

    def input_dims(self) -> list[list[str]]:
        """Names of the core dimensions of each input."""
        inputs = self.gufunc_signature.split("->")[0]
        return [re.findall(r"\w+", group) for group in re.findall(r"\((.*?)\)", inputs)]

    def make_node(self, *inputs: Any) -> Apply:
        """Node with the value and a derivative for each input; inputs become float64."""
        variables = [pt.as_tensor_variable(x) for x in inputs]
        dims = self.input_dims()
        names = self.input_names[: len(dims)]  # the last may be left out
        for name, own, x in zip(names, dims, variables, strict=True):
            if x.type.ndim != len(own):
                raise ValueError(
                    f"{name} must have {len(own)} dimension(s), got {x.type.ndim}: "
                    "batches go through `with_batches`."
                )
        variables = [pt.cast(x, "float64") for x in variables]
        known = self._known_lengths(variables)
        shapes = [tuple(known.get(dim) for dim in own) for own in dims]
        derivatives = [pt.tensor(dtype="float64", shape=shape) for shape in shapes]
        return Apply(self, variables, [pt.dscalar(), *derivatives])

    def _known_lengths(self, variables: Sequence[Any]) -> dict[str, int]:
        """Static lengths by name of the dimension; those of one name must agree."""
        known: dict[str, int] = {}
        for own, x in zip(self.input_dims(), variables, strict=True):
            for dim, length in zip(own, x.type.shape, strict=True):
                if length is not None and known.setdefault(dim, length) != length:
                    shapes = ", ".join(str(x.type.shape) for x in variables)
                    raise ValueError(
                        f"{', '.join(self.input_names)} must be of one length {dim} each, "
                        f"got shapes {shapes}."
                    )
        return known

    def infer_shape(self, node: Apply, input_shapes: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Shapes of the outputs from those of the inputs."""
        return [(), *input_shapes]

    def evaluate(self, *inputs: FloatArray) -> tuple[FloatArray, ...]:
        """Value and derivatives as contiguous arrays."""
        raise NotImplementedError

    def perform(self, node: Apply, inputs: Sequence[FloatArray], outputs: Any) -> None:
        """Evaluate."""
        for storage, result in zip(outputs, self.evaluate(*inputs), strict=True):
            storage[0] = result

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """Gradient of the value; the derivatives among the outputs have none."""
        of_value, *of_derivatives = cotangents
        if any(not isinstance(x.type, DisconnectedType) for x in of_derivatives):
            comment = f"Second derivatives of a {self.quantity} are not available."
            return [grad_not_implemented(self, i, x, comment) for i, x in enumerate(inputs)]
        return [of_value * derivative for derivative in outputs[1:]]


def with_batches(op: ValueWithDerivatives, *inputs: TensorVariable) -> TensorVariable:
    """Value of `op`, for each member of the inputs' batch dimensions where there are any."""
    if all(x.type.ndim == len(own) for x, own in zip(inputs, op.input_dims(), strict=True)):
        return op(*inputs)[0]
    return Blockwise(op)(*(pt.cast(x, "float64") for x in inputs))[0]
