"""What an integral over hyperparameters is doing, for whom it may concern."""

from typing import Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Stages:
    """A line of progress: what is done now, and how much of it.

    Parameters
    ----------
    progressbar : bool
    """

    def __init__(self, progressbar: bool) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, disable=not progressbar)
        self._task = self._progress.add_task("Posterior modes of the hyperparameters", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int | None = None) -> None:
        """Another stage, of so many steps."""
        self._progress.reset(self._task, description=what, total=total)

    def tick(self) -> None:
        """One step."""
        self._progress.advance(self._task)
