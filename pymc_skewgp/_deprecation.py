"""Old names that work for one more release; a FutureWarning says the new one."""

import warnings
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar, cast

_P = ParamSpec("_P")
_R = TypeVar("_R")


def warn_renamed(old: str, new: str, stacklevel: int = 2) -> None:
    """Say that `old` is now `new`; `stacklevel` counts from the caller, as of `warnings.warn`."""
    warnings.warn(
        f"{old} is now called {new}; the old name goes with the next release.",
        FutureWarning,
        stacklevel=stacklevel + 1,
    )


def renamed_argument(where: str, old: str, new: str, old_value: Any, value: Any) -> Any:
    """Value of an argument that was called `old`: what was given under either name.

    Parameters
    ----------
    where : str
        The function, as a user calls it.
    old, new : str
    old_value : object
        None where the old name was not used.
    value : object
        Under the new name: its default where only the old one was used.

    Returns
    -------
    object

    Warns
    -----
    FutureWarning
        When the old name was used.
    """
    if old_value is None:
        return value
    warn_renamed(f"{where}({old}=...)", f"{new}", stacklevel=3)
    return old_value


class RenamedAttribute:
    """An attribute under its old name.

    Parameters
    ----------
    new : str
        Its name now.
    """

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._old = owner.__name__, name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        warn_renamed(f"{self._owner}.{self._old}", self._new)
        return getattr(instance, self._new)


def formerly_positional(*names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: what used to be allowed by position, after all other arguments, still is.

    Parameters
    ----------
    *names : str
        Keyword-only arguments in the order that they had.

    Returns
    -------
    callable
        Decorator that keeps the signature; positional values warn with a FutureWarning.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        allowed = sum(p.kind in kinds for p in signature(function).parameters.values())

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            extra = args[allowed:]
            if not extra or len(extra) > len(names):  # too many: the function itself says so
                return function(*args, **kwargs)
            given = dict(zip(names, extra, strict=False))
            warnings.warn(
                f"{function.__qualname__} takes {', '.join(given)} by name from the next release "
                f"on: write {', '.join(f'{name}=...' for name in given)}.",
                FutureWarning,
                stacklevel=2,
            )
            return cast(Any, function)(*args[:allowed], **given, **kwargs)

        return call

    return decorate
