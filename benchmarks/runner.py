"""Named sections of a benchmark, run one by one and written as they go."""

import csv
import functools
import hashlib
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import pymc_skewgp

# What was measured, what was asked for, what was reached.
Section = Callable[[], Iterator[tuple[str, str, str]]]


@functools.cache  # of what runs: the files may be edited before it ends
def machine(packages: tuple[str, ...] = ("numpy", "scipy", "numba")) -> str:
    """Processor and versions; of this package also a digest of its code."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = re.search(r"model name\s*: (.*)", info.read_text())
        cpu = named[1] if named else cpu
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{cpu}; Python {platform.python_version()}; {versions}; pymc_skewgp {code()}"


def code() -> str:
    """What tells one state of the package's code from another."""
    digest = hashlib.sha256()
    for path in sorted(Path(pymc_skewgp.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{pymc_skewgp.__version__} ({digest.hexdigest()[:8]})"


def run_sections(
    sections: Mapping[str, Section],
    path: Path,
    only: list[str] | None = None,
    packages: tuple[str, ...] = ("numpy", "scipy", "numba"),
) -> None:
    """Run the sections named in `only`, or those that the file at `path` does not have yet.

    Each figure is printed beside the one asked for and appended to the file as soon as it is known;
    the rows of a section that is run again go first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    old = _read(path)
    done = {row[0] for row in old}
    host = machine(packages)
    print(host + "\n")
    for name in only or [section for section in sections if section not in done]:
        if name in done:
            old = [row for row in old if row[0] != name]
            with path.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(old)
        what = getattr(sections[name], "func", sections[name]).__doc__  # of a partial, its function
        print(f"## {name}: {what}", flush=True)
        for measured, asked, reached in sections[name]():
            print(f"  {measured:<75} {asked:<12} {reached}", flush=True)
            with path.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(
                    [name, measured, asked, reached, host]
                )
        old = _read(path)


def append_rows(
    path: Path,
    rows: Sequence[Mapping[str, object]],
    host: str,
    fields: Sequence[str] | None = None,
) -> None:
    """Rows to the end of a table, with the machine; the table is begun where it is not there."""
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*(fields or rows[0]), "machine"], lineterminator="\n")
        if not path.stat().st_size:
            writer.writeheader()
        writer.writerows({**row, "machine": host} for row in rows)


def read_rows(path: Path) -> list[dict[str, str]]:
    """What `append_rows` wrote; a line that a killed run has not written to its end is cut off."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    return list(csv.DictReader(whole.decode().splitlines()))


def _read(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text().splitlines())) if path.exists() else []
