#!/usr/bin/env python3
"""The terminal picture of the README, from what the demo really printed.

    cargo run --release -- demo --once | tests/picture.py 3 5 > examples/demo.svg

Numbers name the scenarios that are shown; none: all. Lines are drawn as printed, only their colour is added. Must never show
what was not on its input.
"""

import html
import re
import sys

FONT, WIDTH, HEIGHT, MARGIN = 13, 7.83, 19, 18  # pixels: size, advance and line height of the font, and the frame
COLOURS = [(r"With: ", "#f0f6fc"), (r"FAILED", "#f47067"), (r"answered by|a call: |a call that", "#8ddb8c"), (r"^\d+\. ", "#f0f6fc")]


def scenarios(lines, wanted):
    """The parts of the output that begin with a wanted number; all lines if none is wanted."""
    shown = not wanted
    for line in lines:
        heading = re.match(r"(\d+)\. ", line)
        if heading and wanted:
            shown = heading.group(1) in wanted
        if shown:
            yield line


def drawn(row, line):
    colour = next((colour for pattern, colour in COLOURS if re.search(pattern, line)), "#9198a1")
    weight = ' font-weight="bold"' if re.match(r"\d+\. ", line) else ""
    y = MARGIN + 34 + row * HEIGHT
    return f'<text x="{MARGIN}" y="{y}" fill="{colour}"{weight} xml:space="preserve">{html.escape(line)}</text>'


def main():
    lines = [line.rstrip() for line in scenarios(sys.stdin.read().splitlines(), sys.argv[1:])]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        sys.exit("nothing to draw: pipe the demo's output in, and name scenarios that it has")
    lines.insert(0, "$ cargo run --release -- demo")
    width = round(2 * MARGIN + WIDTH * max(map(len, lines)))
    height = 2 * MARGIN + 30 + HEIGHT * len(lines)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
          f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="{FONT}">')
    print(f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>')
    for at, colour in enumerate(["#f47067", "#e3b341", "#8ddb8c"]):
        print(f'<circle cx="{MARGIN + 6 + 20 * at}" cy="{MARGIN}" r="6" fill="{colour}"/>')
    for row, line in enumerate(lines):
        print(drawn(row, line))
    print("</svg>")


if __name__ == "__main__":
    main()
