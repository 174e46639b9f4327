"""Draws the pictures of the documentation: `python -m tools.pictures`, or `make pictures`.

`thread.svg` shows a thread with a fork, a switch and the ledger.  `demo.svg` is a recording of the first steps of
`perdure demo`: the command is really run, and only its ids are replaced, so that two recordings are the same.
These load nothing, neither fonts nor scripts.  `page.png` is taken of the page by a real browser, if there is one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from rich.style import Style
from rich.text import Text

from tests.page import browser

__all__ = ["DIRECTORY", "PAGE", "demo", "photograph", "pictures", "record", "thread"]

DIRECTORY = Path(__file__).parents[1] / "docs" / "pictures"
PAGE = "page.png"

_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_SANS = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def pictures(recorded: list[str]) -> dict[str, str]:
    """Return each picture under the name of its file, with a demo that was recorded."""
    return {"thread.svg": thread(), "demo.svg": demo(recorded)}


def photograph() -> bytes:
    """Serve the story of the browser tests, and return the picture that a real browser takes of it."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        with browser.Browser() as chromium, browser.serving(str(directory / "agents.db"), directory) as link:
            chromium.play(link, directory, ("readme",))
        return (directory / PAGE).read_bytes()


# ---- a thread

_BLUE, _GREEN, _ORANGE, _INK, _QUIET = "#2563eb", "#15803d", "#c2410c", "#1f2937", "#6b7280"
_MAIN_Y, _FORK_Y = 100, 205
_COMMITS = (60, 150, 240, 330, 420, 500)  # where the commits of `main` are
_FORKED = (330, 420)


def thread() -> str:
    """Draw a thread: two timelines that share a past, a switch of the backend, and the ledger beside them."""
    parts = [
        _rect(8, 8, 548, 284, "#f8fafc", "#cbd5e1"),
        _text(24, 36, "thread “rent”", size=16, weight=600),
        _text(24, 54, "every circle is a commit: what was said, and the whole state", fill=_QUIET),
        *_timelines(),
        *_ledger(),
    ]
    return _svg(820, 300, parts, title="A thread with a fork and a switch, and its ledger")


def _timelines() -> Iterator[str]:
    first, last = _COMMITS[0], _COMMITS[-1]
    yield _line(f"M{first} {_MAIN_Y} H{last}", _BLUE)
    yield _line(
        f"M{_COMMITS[2]} {_MAIN_Y} C{_COMMITS[2] + 40} {_MAIN_Y} {_FORKED[0] - 60} {_FORK_Y} {_FORKED[0]} {_FORK_Y}"
        f" H{_FORKED[-1]}",
        _GREEN,
    )
    labels = ("“Pay the rent”", "asks: pay(900)", "result: paid", "switch", "“Is it paid?”", "“Yes.”")
    for x, label in zip(_COMMITS, labels, strict=True):
        yield _diamond(x, _MAIN_Y) if label == "switch" else _circle(x, _MAIN_Y, _BLUE)
        yield _text(x, _MAIN_Y - 16, label, anchor="middle", size=11)
    yield _text(_COMMITS[3], _MAIN_Y + 28, "from anthropic:…", anchor="middle", size=11, fill=_ORANGE)
    yield _text(_COMMITS[3], _MAIN_Y + 42, "to openai:…", anchor="middle", size=11, fill=_ORANGE)
    yield _tag(last + 16, _MAIN_Y, "main", _BLUE)
    for x, label in zip(_FORKED, ("“What if …”", "asks: pay(900)"), strict=True):
        yield _circle(x, _FORK_Y, _GREEN)
        yield _text(x, _FORK_Y + 26, label, anchor="middle", size=11)
    yield _tag(_FORKED[-1] + 16, _FORK_Y, "what-if", _GREEN)
    yield _text(24, _FORK_Y + 4, "a fork copies nothing:", fill=_QUIET)
    yield _text(24, _FORK_Y + 20, "both lines share the past", fill=_QUIET)
    yield _text(24, 272, "undo moves a head back; no commit is lost", fill=_QUIET)


def _ledger() -> Iterator[str]:
    left = 572
    yield _rect(left, 8, 240, 284, "#fffbeb", "#fcd34d")
    yield _text(left + 16, 36, "ledger", size=16, weight=600)
    yield _text(left + 16, 54, "one for all timelines, append-only", fill=_QUIET)
    rows = (
        (90, "pay(900)", "requested", _INK),
        (116, "pay(900)", "started", _INK),
        (142, "pay(900)", "succeeded", _GREEN),
        (210, "pay(900)", "done already:", _ORANGE),
        (228, "", "not run, a person decides", _ORANGE),
    )
    for y, call, state, colour in rows:
        if call:
            yield _text(left + 16, y, call, family=_MONO)
        yield _text(left + 92 if call else left + 16, y, state, fill=colour)
    yield _line(f"M{left + 16} 166 H{left + 224}", "#fcd34d", width=1)
    yield _text(left + 16, 188, "the fork asks for it again:", fill=_QUIET)
    yield _text(left + 16, 262, "undo and fork take back words,", fill=_QUIET)
    yield _text(left + 16, 278, "never a payment", fill=_QUIET)


def _svg(width: int, height: int, parts: Iterable[str], *, title: str, style: str = "") -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img"><title>{escape(title)}</title>'
    )
    return "\n".join([head, *([f"<style>{style}</style>"] if style else []), *parts, "</svg>", ""])


def _rect(x: int, y: int, width: int, height: int, fill: str, stroke: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" stroke="{stroke}"/>'


def _line(path: str, colour: str, *, width: int = 3) -> str:
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _circle(x: int, y: int, colour: str) -> str:
    return f'<circle cx="{x}" cy="{y}" r="8" fill="#ffffff" stroke="{colour}" stroke-width="3"/>'


def _diamond(x: int, y: int) -> str:
    return (
        f'<path d="M{x} {y - 11} L{x + 11} {y} L{x} {y + 11} L{x - 11} {y} Z" fill="#ffffff"'
        f' stroke="{_ORANGE}" stroke-width="3"/>'
    )


def _tag(x: int, y: int, name: str, colour: str) -> str:
    return _text(x, y + 4, name, weight=600, fill=colour, family=_MONO, size=13)


def _text(
    x: int,
    y: int,
    words: str,
    *,
    size: int = 12,
    weight: int = 400,
    fill: str = _INK,
    anchor: str = "start",
    family: str = _SANS,
) -> str:
    return (
        f'<text x="{x}" y="{y}" font-family="{family}" font-size="{size}" font-weight="{weight}" fill="{fill}"'
        f' text-anchor="{anchor}">{escape(words)}</text>'
    )


# ---- the demo

_COLUMNS = 96
_SHOWN_UNTIL = "4  "  # the first step that is left out
_WHOLE = "promises held"
_CHAR_WIDTH, _LINE_HEIGHT, _TOP, _LEFT = 7.9, 18, 44, 16
_SECONDS_PER_LINE = 0.22
_COLOURS = {
    1: "#f87171",
    2: "#4ade80",
    3: "#facc15",
    4: "#60a5fa",
    5: "#e879f9",
    6: "#22d3ee",
}  # by ANSI number
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_FIXED_UUID = "01a1e636-ff10-7941-a0a0-61bf31f9ff2f"
_RUN = """
from perdure.cli import main
from perdure.cli.commands.demo import switching
switching.available = lambda: False  # a model on this machine would say something else on the next one
main(["demo"])
"""


def record() -> list[str]:
    """Run the demo on a terminal of a fixed width, and return its lines with their colours."""
    width = {"FORCE_COLOR": "1", "COLUMNS": str(_COLUMNS), "NO_COLOR": "", "TERM": "xterm-256color"}
    source = str(Path(__file__).parents[1] / "src")
    environment = {**os.environ, **width, "PYTHONPATH": source, "PYTHONIOENCODING": "utf-8"}
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-c", _RUN], cwd=directory, env=environment, capture_output=True, check=True
        )
    return _UUID.sub(_FIXED_UUID, done.stdout.decode()).splitlines()


def demo(lines: list[str]) -> str:
    """Draw the first steps of a recorded demo as a terminal in which the lines appear one after another."""
    texts = [Text.from_ansi(line) for line in lines]
    end = next(at for at, text in enumerate(texts) if text.plain.startswith(_SHOWN_UNTIL))
    last = [text for text in texts if _WHOLE in text.plain]
    shown = [Text("$ perdure demo"), *texts[:end], Text("   … and so on, step by step", "dim"), *last]
    width, height = int(_LEFT * 2 + _CHAR_WIDTH * _COLUMNS), _TOP + _LINE_HEIGHT * len(shown)
    style = (
        "@keyframes appear{from{opacity:0}to{opacity:1}}"
        ".l{animation:appear .1s both}"
        "@media (prefers-reduced-motion:reduce){.l{animation:none}}"
    )
    parts = [
        f'<rect width="{width}" height="{height}" rx="8" fill="#111827"/>',
        *(f'<circle cx="{16 + 18 * at}" cy="16" r="5" fill="#4b5563"/>' for at in range(3)),
        f'<g font-family="{_MONO}" font-size="13" fill="#e5e7eb" xml:space="preserve">',
        *(_terminal_line(at, text) for at, text in enumerate(shown) if text.plain),
        "</g>",
    ]
    return _svg(width, height, parts, title="The first steps of perdure demo", style=style)


def _terminal_line(at: int, text: Text) -> str:
    """Draw one line; each run of one style has its own place, so that any font keeps the columns."""
    y, delay = _TOP + _LINE_HEIGHT * at, at * _SECONDS_PER_LINE
    spans = [_span(start, words, style) for start, words, style in _runs(text)]
    return f'<text class="l" style="animation-delay:{delay:.2f}s" y="{y}">{"".join(spans)}</text>'


def _runs(text: Text) -> Iterator[tuple[int, str, Style]]:
    """The parts of a line that have one style each, without the spaces before them."""
    edges = sorted({0, len(text.plain), *(edge for span in text.spans for edge in (span.start, span.end))})
    for start, end in pairwise(edges):
        words = text.plain[start:end]
        styles = [
            Style.parse(str(span.style)) for span in text.spans if span.start <= start and end <= span.end
        ]
        base = Style.parse(str(text.style)) if text.style else Style.null()
        if words.strip():
            yield start + len(words) - len(words.lstrip()), words.strip(), Style.combine([base, *styles])


def _span(start: int, words: str, style: Style) -> str:
    colour = _COLOURS.get(style.color.number or 0) if style.color else None
    fill = colour or ("#9ca3af" if style.dim else None)
    look = f' fill="{fill}"' if fill else ""
    weight = ' font-weight="700"' if style.bold else ""
    x, length = _LEFT + start * _CHAR_WIDTH, len(words) * _CHAR_WIDTH
    return f'<tspan x="{x:.1f}" textLength="{length:.1f}"{look}{weight}>{escape(words)}</tspan>'


def main() -> None:
    """Write each picture, and say what was written."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in pictures(record()).items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")
        print(f"{name}: {len(text.encode()):,} bytes")
    missing = browser.missing()
    if missing is not None:
        print(f"{PAGE} stays as it is: {missing}")
        return
    (DIRECTORY / PAGE).write_bytes(photograph())
    print(f"{PAGE}: {(DIRECTORY / PAGE).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
