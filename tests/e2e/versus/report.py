"""The tables as Markdown, and the plot.
SPDX-License-Identifier: Apache-2.0
"""
import math
import statistics

SERVERS = ("ulfd", "ONNX Runtime")
COLOURS = {"ulfd": "#1769aa", "ONNX Runtime": "#b8860b"}
PANELS = (("calls", "Calls per second and core", "{:.0f}"), ("p99", "p99 at the same rate, ms", "{:.1f}"))
BAR, GROUP, TOP, HEIGHT, LEFT = 26, 76, 56, 190, 52


def spread(values, form="{:.3g}"):
    """Median, and the extremes where there are several."""
    text = form.format(statistics.median(values))
    if len(values) > 1:
        text += f" ({form.format(min(values))} to {form.format(max(values))})"
    return text


def table(cells):
    lines = ["| model | ads | calls/s and core, ulfd | ONNX Runtime | ratio | of that in ONNX Runtime itself "
             "| rate, calls/s | p99, ulfd, ms | ONNX Runtime, ms | scores differ by |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for cell in cells:
        ours, theirs = (cell["servers"][name] for name in SERVERS)
        ratios = [a / b for a, b in zip(ours["calls"], theirs["calls"])]
        lines.append(
            f"| {cell['model']} | {cell['ads']} | {spread(ours['calls'])} | {spread(theirs['calls'])} "
            f"| **{spread(ratios, '{:.2f}')}** | {cell['peer_share']:.0%} "
            f"| {cell['rate']:.3g} | {spread(ours['p99'])} | {spread(theirs['p99'])} "
            f"| {cell['difference']:.0e} |")
    return "\n".join(lines)


def reload_table(rows):
    lines = ["| server | exchanges | calls | lost | p99 without, ms | p99 with, ms | ratio |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        ratios = [b / a for a, b in zip(row["quiet"], row["busy"])]
        lines.append(f"| {row['server']} | {row['exchanges']} | {row['calls']} | {row['lost']} "
                     f"| {spread(row['quiet'])} | {spread(row['busy'])} | {spread(ratios, '{:.2f}')} |")
    return "\n".join(lines)


def text(x, y, words, size=11, anchor="middle"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="#333333">{words}</text>')


def panel(cells, top, key, title, form):
    """Bars on a logarithmic scale, a pair for each cell."""
    values = {(i, name): statistics.median(cell["servers"][name][key])
              for i, cell in enumerate(cells) for name in SERVERS}
    low = math.floor(math.log10(min(values.values())) - 0.05)
    high = math.ceil(math.log10(max(values.values())) + 0.05)
    bottom = top + HEIGHT

    def y(value):
        return bottom - HEIGHT * (math.log10(value) - low) / (high - low)

    right = LEFT + GROUP * len(cells)
    parts = [text(LEFT, top - 14, title, 13, "start")]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts += [f'<line x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>',
                  text(LEFT - 6, at + 4, f"{10.0**power:g}", anchor="end")]
    for (i, name), value in values.items():
        x = LEFT + GROUP * i + 12 + BAR * SERVERS.index(name)
        parts += [f'<rect x="{x}" y="{y(value):.1f}" width="{BAR - 2}" height="{bottom - y(value):.1f}" '
                  f'fill="{COLOURS[name]}"><title>{cells[i]["model"]}, {cells[i]["ads"]} ads, {name}: '
                  f'{value:.4g}</title></rect>', text(x + BAR / 2 - 1, y(value) - 3, form.format(value), 8)]
    for i, cell in enumerate(cells):
        middle = LEFT + GROUP * i + 12 + BAR
        parts += [text(middle, bottom + 14, cell["model"], 10),
                  text(middle, bottom + 27, f"{cell['ads']} ad{'s' if cell['ads'] > 1 else ''}", 10)]
    return parts


def plot(cells):
    width = LEFT + GROUP * len(cells) + 20
    height = TOP + len(PANELS) * (HEIGHT + 80)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif">', f'<rect width="{width}" height="{height}" fill="white"/>']
    for i, name in enumerate(SERVERS):
        parts += [f'<rect x="{LEFT + 180 * i}" y="10" width="12" height="12" fill="{COLOURS[name]}"/>',
                  text(LEFT + 180 * i + 18, 20, name if i == 0 else name + " behind grpc-js", 12, "start")]
    for i, (key, title, form) in enumerate(PANELS):
        parts += panel(cells, TOP + i * (HEIGHT + 80) + 10, key, title, form)
    return "\n".join(parts + ["</svg>\n"])
