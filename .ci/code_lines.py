"""Count lines of code, docstrings and comments left out; exit with 1 where there are too many.

python3 .ci/code_lines.py  compares with the figures below, which only fall.
"""

import ast
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Folder: most lines of code, most files.
MOST = {"pymc_skewgp": (39_545, 169), "tests": (28_880, 174)}
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def docstring_lines(source: str) -> set[int]:
    """Numbers of the lines of docstrings."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            found.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found


def code_lines(path: Path) -> int:
    """Lines that hold a token other than comments and docstrings."""
    with path.open("rb") as file:
        tokens = [t for t in tokenize.tokenize(file.readline) if t.type not in LAYOUT]
    held = {line for t in tokens for line in range(t.start[0], t.end[0] + 1)}
    return len(held - docstring_lines(path.read_text(encoding="utf-8")))


def main() -> int:
    """Print the figures of each folder, and compare them."""
    status = 0
    for folder, (most_lines, most_files) in MOST.items():
        counts = [code_lines(path) for path in sorted((ROOT / folder).rglob("*.py"))]
        lines, files = sum(counts), len(counts)
        print(
            f"{folder}: {lines} lines of code in {files} files ({most_lines}, {most_files} at most)"
        )
        status |= lines > most_lines or files > most_files
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
