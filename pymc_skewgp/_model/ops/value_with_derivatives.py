"""An Op whose first output is a value and whose others are its derivatives, one for each input."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pytensor.gradient import DisconnectedType, grad_not_implemented
from pytensor.graph.op import Op


class ValueWithDerivatives(Op):
    """One evaluation gives the value and its gradient; the derivatives themselves have none.

    Attributes
    ----------
    quantity : str
        What the value is, for the message about second derivatives.
    """

    quantity: ClassVar[str]

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """Gradient of the value; the derivatives among the outputs have none."""
        of_value, *of_derivatives = cotangents
        if any(not isinstance(x.type, DisconnectedType) for x in of_derivatives):
            comment = f"Second derivatives of a {self.quantity} are not available."
            return [grad_not_implemented(self, i, x, comment) for i, x in enumerate(inputs)]
        return [of_value * derivative for derivative in outputs[1:]]
