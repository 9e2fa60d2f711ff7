#!/usr/bin/env python3
"""Draws the pictures of the documentation as SVG, from real output; scripts/pictures.sh provides that.

  pictures.py terminal COMMAND <text                 a terminal with the command and its output
  pictures.py page URL <html                         a page of the gateway, in a browser's frame
  pictures.py dashboard FILE PROMETHEUS SECONDS      a Grafana dashboard with the data of the last SECONDS

The dashboard is not Grafana's rendering: this draws the panels' titles, positions, expressions, legends and units. Equal input
gives equal output: of more than twelve series, those with the highest values are drawn. Needs nothing but Python.
"""

import html
import html.parser
import json
import re
import sys
import urllib.parse
import urllib.request

MONOSPACE = "ui-monospace,SFMono-Regular,Menlo,DejaVu Sans Mono,monospace"
# A palette that colour-blind people can distinguish, as in tools/bench.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5d5d5d", "#882255"]


def document(width, height, parts, font="sans-serif"):
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{font}">\n{body}\n</svg>\n'
    )


def frame(width, height, title, fill):
    lights = "".join(f'<circle cx="{18 + 18 * n}" cy="16" r="5.5" fill="{c}"/>' for n, c in enumerate(("#ff5f57", "#febc2e", "#28c840")))
    return [
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{fill}" stroke="#8886"/>',
        lights,
        f'<text x="{width / 2:g}" y="20" font-size="12" fill="#888" text-anchor="middle">{html.escape(title)}</text>',
    ]


def terminal(command, text):
    lines = [f"$ {command}", *text.rstrip("\n").split("\n")]
    columns = max(len(line) for line in lines)
    # Half an em per character would be too little for some fonts; textLength fixes the width for all of them.
    step, leading = 7.3, 19
    width, height = round(columns * step + 40), len(lines) * leading + 52
    parts = frame(width, height, "torana", "#16181d")
    for n, line in enumerate(lines):
        if not line.strip():
            continue
        colour = "#7fd1ff" if n == 0 else "#9aa0aa" if n == 1 else "#e6e6e6"
        text = html.escape(line)
        for word, of in (("True", "#7ddb8a"), ("False", "#ff8a80"), ("Closed", "#7ddb8a"), ("Open", "#ff8a80")):
            text = re.sub(rf"\b{word}\b", f'<tspan fill="{of}">{word}</tspan>', text) if n > 1 else text
        parts.append(
            f'<text x="20" y="{52 + n * leading}" font-size="12.2" xml:space="preserve" fill="{colour}" '
            f'textLength="{len(line) * step:g}">{text}</text>'
        )
    return document(width, height, parts, MONOSPACE)


class WellFormed(html.parser.HTMLParser):
    """HTML as our pages are written (unquoted attributes, implied ends) to XHTML, which SVG can hold."""

    VOID = {"br", "meta", "hr", "img", "link"}
    # What the beginning of an element ends.
    ENDS = {"td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"}, "li": {"li"}, "p": {"p"}, "table": {"p"}, "h2": {"p"}}

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.out, self.open, self.style, self.title = [], [], "", ""

    def handle_starttag(self, tag, attributes):
        if tag in ("html", "meta"):
            return
        ends = self.ENDS.get(tag, set())
        while self.open and self.open[-1] in ends:
            self.out.append(f"</{self.open.pop()}>")
        given = "".join(f' {name}="{html.escape(value or "")}"' for name, value in attributes)
        if tag in self.VOID:
            self.out.append(f"<{tag}{given}/>")
        else:
            self.open.append(tag)
            self.out.append(f"<{tag}{given}>")

    def handle_endtag(self, tag):
        if tag not in self.open:
            return
        while True:
            ended = self.open.pop()
            self.out.append(f"</{ended}>")
            if ended == tag:
                return

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            # A document's body is a <div> here. Pictures are light, whatever the reader's colour scheme.
            self.style = re.sub(r"@media\(prefers-color-scheme:dark\)\{(?:[^{}]*\{[^{}]*\})*\}", "", data).replace("body{", ".page{")
            self.out.append(html.escape(self.style))
        else:
            self.out.append(html.escape(data))

    def result(self):
        self.out += [f"</{tag}>" for tag in reversed(self.open)]
        return re.sub(r"<title>.*?</title>", "", "".join(self.out))


def page(url, text):
    parser = WellFormed()
    parser.feed(text)
    # Lines of text are not measured here: a row has up to ten, an item of the list of causes four.
    width, height = 1180, 310 + 205 * text.count("<tr><td>") + 90 * text.count("<li>")
    parts = frame(width, height, url, "#ffffff")
    parts.append(
        f'<foreignObject x="8" y="32" width="{width - 16}" height="{height - 40}">'
        f'<div xmlns="http://www.w3.org/1999/xhtml" class="page">{parser.result()}</div></foreignObject>'
    )
    return document(width, height, parts)


def shown(value, unit):
    if unit == "bytes":
        for of in ("B", "KiB", "MiB", "GiB", "TiB"):
            if abs(value) < 1024:
                break
            value /= 1024
        return f"{value:.3g} {of}"
    if unit == "s":
        for factor, of in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
            if abs(value) * factor >= 1 or of == "µs":
                return "0 s" if value == 0 else f"{value * factor:.3g} {of}"
    for factor, of in ((1e-9, "G"), (1e-6, "M"), (1e-3, "k")):
        if abs(value) * factor >= 1:
            return f"{value * factor:.3g} {of}"
    return f"{value:.3g}" + (" req/s" if unit == "reqps" else "")


def query(prometheus, expression, seconds):
    """The series of an expression: label sets, and lists of (time, value) without gaps."""
    ask = lambda path, **parameters: json.load(urllib.request.urlopen(f"{prometheus}{path}?{urllib.parse.urlencode(parameters)}", timeout=10))
    end = float(ask("/api/v1/query", query="time()")["data"]["result"][1])
    step = max(seconds / 120, 1)
    answer = ask("/api/v1/query_range", query=expression, start=end - seconds, end=end, step=step)
    if answer["status"] != "success":
        raise SystemExit(f"{expression}: {answer}")
    for series in answer["data"]["result"]:
        points = [(float(t) - end, float(v)) for t, v in series["values"] if v not in ("NaN", "+Inf", "-Inf")]
        if points:
            yield series["metric"], points


def panel(spec, place, prometheus, seconds):
    x, y, width, height = place
    unit = spec.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    lines = []
    for target in spec["targets"]:
        expression = target["expr"].replace("$__rate_interval", "15s").replace("$instance", ".+")
        for metric, points in query(prometheus, expression, seconds):
            name = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda m: metric.get(m.group(1), ""), target.get("legendFormat") or str(metric))
            lines.append((name.strip() or "(none)", points))
    lines.sort(key=lambda line: (-max(v for _, v in line[1]), line[0]))
    out = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="#fff" stroke="#d8d9da"/>',
        f'<text x="{x + 10}" y="{y + 20}" font-size="13" font-weight="600" fill="#222">{html.escape(spec["title"])}</text>',
    ]
    left, right, top, bottom = x + 74, x + width - 14, y + 36, y + height - 56
    if not lines:
        out.append(f'<text x="{x + width / 2:g}" y="{y + height / 2:g}" font-size="13" fill="#888" text-anchor="middle">No data</text>')
        return out
    more, lines = len(lines) - 12, lines[:12]
    if more > 0:
        out.append(f'<text x="{right}" y="{y + 20}" font-size="11" fill="#888" text-anchor="end">and {more} smaller</text>')
    highest = max(v for _, points in lines for _, v in points) or 1
    for n in range(5):
        at = bottom - n * (bottom - top) / 4
        out.append(f'<path d="M{left} {at:.1f}H{right}" stroke="#e9e9ea"/>')
        out.append(f'<text x="{left - 6}" y="{at + 4:.1f}" font-size="10.5" fill="#666" text-anchor="end">{shown(highest * n / 4, unit)}</text>')
    for n in range(4):
        ago = seconds * (3 - n) / 3
        at = right - ago / seconds * (right - left)
        out.append(f'<text x="{at:.1f}" y="{bottom + 15}" font-size="10.5" fill="#666" text-anchor="{"end" if n == 3 else "middle"}">{"now" if n == 3 else f"-{ago:.0f} s"}</text>')
    at_x, rows = x + 12, 0
    for n, (name, points) in enumerate(lines):
        colour = COLOURS[n % len(COLOURS)]
        way = " ".join(f"{right + t / seconds * (right - left):.1f},{bottom - v / highest * (bottom - top):.1f}" for t, v in points)
        out.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-linejoin="round"/>')
        label = f"{name}  {shown(points[-1][1], unit)}"
        needs = 24 + 6.1 * len(label)
        if at_x + needs > x + width and at_x > x + 12:
            at_x, rows = x + 12, rows + 1
        if rows < 2:
            out.append(f'<path d="M{at_x:.0f} {bottom + 28 + 16 * rows}h10" stroke="{colour}" stroke-width="3"/>')
            out.append(f'<text x="{at_x + 15:.0f}" y="{bottom + 32 + 16 * rows}" font-size="11" fill="#444">{html.escape(label)}</text>')
        at_x += needs
    return out


def dashboard(file, prometheus, seconds):
    with open(file, encoding="utf-8") as text:
        board = json.load(text)
    column, row, gap = 50, 30, 8
    width = 24 * column + gap
    places = [p["gridPos"] for p in board["panels"]]
    height = max(p["y"] + p["h"] for p in places) * row + 44 + gap
    parts = [
        '<rect width="100%" height="100%" fill="#f4f5f5"/>',
        f'<text x="{gap + 4}" y="28" font-size="18" fill="#222">{html.escape(board["title"])}</text>',
    ]
    for spec, p in zip(board["panels"], places):
        place = (gap + p["x"] * column, 44 + p["y"] * row, p["w"] * column - gap, p["h"] * row - gap)
        parts += panel(spec, place, prometheus, seconds)
    return document(width, height, parts)


def main(arguments):
    match arguments:
        case ["terminal", command]:
            print(terminal(command, sys.stdin.read()), end="")
        case ["page", url]:
            print(page(url, sys.stdin.read()), end="")
        case ["dashboard", file, prometheus, seconds]:
            print(dashboard(file, prometheus, float(seconds)), end="")
        case _:
            raise SystemExit(__doc__)


main(sys.argv[1:])
