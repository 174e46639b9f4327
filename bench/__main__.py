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
from bench.sync import MEMORY, measured_sync, slow_syncs
from bench.table import Result, Skipped, render

_SIZES: dict[str, Sizes] = {"quick": QUICK, "full": FULL, "deep": DEEP, "tiny": TINY}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    place = _place(options.at, in_memory=options.sync is not None)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=place))
    try:
        if options.sync is not None:
            slow_syncs(options.sync)
            _tell(
                f"a sync is to take {options.sync:g} ms; it takes {measured_sync(directory):.3f} ms (median)"
            )
        results = _measure(directory, _SIZES[options.size], options.only or list(MEASURES), options.sync)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(_json(results) if options.json else render(results))
    return 0


def _measure(
    directory: Path, sizes: Sizes, names: list[str], sync_ms: float | None
) -> list[Result | Skipped]:
    results: list[Result | Skipped] = []
    for name in names:
        start = time.perf_counter()
        _tell(f"{name} …")
        results.extend(MEASURES[name](Ground(directory / name, sizes, _tell, sync_ms=sync_ms)))
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
    parser.add_argument(
        "--sync",
        type=_milliseconds,
        metavar="MS",
        help=f"make each sync take this many milliseconds; files are put on memory ({MEMORY})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _milliseconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1_000:
        raise argparse.ArgumentTypeError("a sync takes more than 0 and at most 1,000 ms")
    return value


def _place(at: Path | None, *, in_memory: bool) -> Path:
    """The project's build directory by default: a temporary directory may be in memory."""
    place = at or (MEMORY if in_memory else Path("build"))
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
