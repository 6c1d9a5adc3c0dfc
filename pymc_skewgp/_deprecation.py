"""Old names that work for one more release; a FutureWarning says the new one."""

import warnings
from typing import Any


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
