"""The command line of the yardstick."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.ground import DEEP, FULL, QUICK, TINY, Ground, Sizes
from bench.measures import MEASURES
from bench.table import Result, Skipped, render

_SIZES: dict[str, Sizes] = {"quick": QUICK, "full": FULL, "deep": DEEP, "tiny": TINY}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=_place(options.at)))
    try:
        results = _measure(directory, _SIZES[options.size], options.only or list(MEASURES))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(_json(results) if options.json else render(results))
    return 0


def _measure(directory: Path, sizes: Sizes, names: list[str]) -> list[Result | Skipped]:
    results: list[Result | Skipped] = []
    for name in names:
        start = time.perf_counter()
        _tell(f"{name} …")
        results.extend(MEASURES[name](Ground(directory / name, sizes, _tell)))
        _tell(f"{name}: {time.perf_counter() - start:.0f} s")
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    sizes = parser.add_mutually_exclusive_group()
    for name, what in (("quick", "about a minute"), ("deep", "with a store of 1 GB"), ("tiny", "for tests")):
        sizes.add_argument(f"--{name}", dest="size", action="store_const", const=name, help=what)
    parser.set_defaults(size="full")
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), metavar="MEASURE", help="some of them")
    parser.add_argument("--at", type=Path, help="directory to write in; it must be on the disk to measure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _place(at: Path | None) -> Path:
    """The project's build directory by default: a temporary directory may be in memory."""
    place = Path("build") if at is None else at
    place.mkdir(parents=True, exist_ok=True)
    return place


def _json(results: list[Result | Skipped]) -> str:
    shapes = [
        {
            **msgspec.to_builtins(each),
            **({"ratio": each.ratio, "ok": each.ok} if isinstance(each, Result) else {}),
        }
        for each in results
    ]
    return msgspec.json.format(msgspec.json.encode(shapes)).decode()


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
