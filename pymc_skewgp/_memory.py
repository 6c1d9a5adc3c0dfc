"""Whether draws fit into memory, known before any of it is asked for."""

from collections.abc import Iterator
from pathlib import Path

from pymc_skewgp._errors import TooManyDrawsError

# Less than this is never looked up: reading the limits takes as long as a small problem.
_ALWAYS_ENOUGH = 2**28
# Arrays as large as the draws that a run of the sampler holds at once, at least (2.3 to 3.4 were
# measured: points, draws, and what is computed on the way), and those of draws of f with labels.
SAMPLER_BUFFERS, FUNCTION_BUFFERS = 2, 4
_CGROUP_FILES = (
    ("memory.max", "memory.current", "inactive_file"),  # version 2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
)


def refuse_too_many_draws(what: str, draws: int, rows: int, buffers: int = SAMPLER_BUFFERS) -> None:
    """Raise where `draws` draws of `rows` numbers cannot fit into memory.

    `what` names the argument that asks for them. Where it is not known how much memory there is,
    nothing is refused.

    Raises
    ------
    TooManyDrawsError
        With the bytes it would take, at least, and those available.
    """
    needed = 8 * draws * rows * buffers
    if needed <= _ALWAYS_ENOUGH:
        return
    available = available_bytes()
    if available is None or needed <= available:
        return
    raise TooManyDrawsError(
        f"{what} asks for {draws} draws of {rows} number(s) each, which take at least "
        f"{gigabytes(needed)} ({buffers} arrays of 8 bytes a number), and {gigabytes(available)} "
        "of memory are available: ask for fewer, or for parts of them in several calls."
    )


def available_bytes(
    proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Memory that this process may still take, None where that is not known.

    The least of what the machine has available and of what is left of the limits on the process's
    control groups, as containers and batch systems set them.
    """
    found = [_field(proc / "meminfo", "MemAvailable:", 1024)]
    for folder in _control_groups(proc, cgroup):
        for limit_file, usage_file, reclaimable in _CGROUP_FILES:
            limit, usage = _number(folder / limit_file), _number(folder / usage_file)
            if limit is not None and usage is not None:
                # What the group has read from files is given back when memory runs short.
                cached = _field(folder / "memory.stat", reclaimable, 1) or 0
                found.append(max(limit - max(usage - cached, 0), 0))
    known = [number for number in found if number is not None]
    return min(known, default=None)


def gigabytes(count: int) -> str:
    """Bytes for messages."""
    return f"{min(count, 2**200) / 2**30:.3g} GiB"


def _control_groups(proc: Path, cgroup: Path) -> Iterator[Path]:
    """Folders of the groups that the process is in, and of those around them."""
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = cgroup / controllers
        # In a container the path may be the host's: then only the root is there.
        own = root / path.strip().lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))


def _field(path: Path, key: str, unit: int) -> int | None:
    for line in _lines(path):
        name, _, value = line.partition(" ")
        if name == key:
            return int(value.split()[0]) * unit
    return None


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None  # "max" is no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
