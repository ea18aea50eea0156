#!/usr/bin/env python3
"""Draws a figure of FastPaas as SVG from a bench's CSV, and prints a table beside the paper's figures.

    draw.py FIGURE CSV SVG

FIGURE is 1, 2, 5 (Figures 5 and 6) or 7. Needs nothing but Python's own library.
"""
import csv
import math
import statistics
import sys
import textwrap
from html import escape
from pathlib import Path

COLOURS = ["#1b6ca8", "#d1495b", "#edae49", "#00798c", "#7d5ba6", "#5c5c5c", "#8f9e2a", "#b0692c", "#c06fb0", "#2a2a2a"]
LEFT, TOP, HEIGHT, GAP_X, GAP_Y = 62, 44, 190, 78, 74


class Drawing:
    """Panels side by side, each with axes of its own, one legend and a caption."""

    def __init__(self, title, columns, rows):
        self.columns, self.width = columns, 300 if columns > 1 else 620
        self.parts = [text(LEFT, 22, title, size=15, weight="bold")]
        self.bottom = TOP + rows * (HEIGHT + GAP_Y)

    def panel(self, place, title, x_label, y_label, x_range, y_range, x_ticks, y_ticks):
        """Draws a panel's frame; answers how values become places in it."""
        left = LEFT + place % self.columns * (self.width + GAP_X)
        top = TOP + 14 + place // self.columns * (HEIGHT + GAP_Y)
        scale = lambda value, low, high, length: (value - low) / (high - low) * length
        x = lambda value: left + scale(value, *x_range, self.width)
        y = lambda value: top + HEIGHT - scale(value, *y_range, HEIGHT)
        self.parts.append(text(left, top - 8, title, size=12, weight="bold"))
        for value, label in y_ticks:
            self.parts.append(line(left, y(value), left + self.width, y(value), "#dddddd"))
            self.parts.append(text(left - 6, y(value) + 4, label, anchor="end"))
        for value, label in x_ticks:
            self.parts.append(text(x(value), top + HEIGHT + 16, label, anchor="middle"))
        self.parts.append(f'<rect x="{left}" y="{top}" width="{self.width}" height="{HEIGHT}" fill="none" stroke="#888888"/>')
        self.parts.append(text(left + self.width / 2, top + HEIGHT + 32, x_label, anchor="middle"))
        turned = f' transform="rotate(-90 {left - 42} {top + HEIGHT / 2})"'
        self.parts.append(text(left - 42, top + HEIGHT / 2, y_label, anchor="middle", more=turned))
        return x, y

    def finish(self, series, caption, path):
        at = LEFT
        for number, name in enumerate(series):
            self.parts.append(f'<rect x="{at}" y="{self.bottom}" width="11" height="11" fill="{COLOURS[number]}"/>')
            self.parts.append(text(at + 16, self.bottom + 10, name))
            at += 34 + 6.4 * len(name)
        width = LEFT + self.columns * (self.width + GAP_X) - GAP_X + 24
        down = self.bottom + 34
        for part in textwrap.wrap(caption, int((width - LEFT) / 5.9)):
            self.parts.append(text(LEFT, down, part))
            down += 15
        width = max(width, at)
        body = "\n".join(self.parts)
        Path(path).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{down + 6:.0f}" '
            f'viewBox="0 0 {width:.0f} {down + 6:.0f}" font-family="sans-serif">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
        )


def text(x, y, words, size=11, anchor="start", weight="normal", more=""):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}"{more}>'
        f"{escape(str(words))}</text>"
    )


def line(x1, y1, x2, y2, colour, width=1, dash=""):
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def polyline(points, colour):
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'


def bar(x, y, width, base, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(base - y, 0):.1f}" fill="{colour}"/>'


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def in_order(rows, column):
    return list(dict.fromkeys(row[column] for row in rows))


def ticks(most, count=5):
    """Round numbers from 0 to at least `most`, and their end."""
    raw = max(most, 1e-9) / count
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw * 0.999)
    return [(step * number, f"{step * number:g}") for number in range(count + 1)], step * count


def paper(figures):
    rows = read(Path(__file__).parent / "paper.csv")
    return {(row["function"], row["mode"]): row for row in rows if row["figure"] in figures}


def figure_1(rows, path):
    drawing = Drawing("Chains of LPM (the paper's Figure 1)", 1, 1)
    series = in_order(rows, "setup")
    lengths = sorted({int(row["length"]) for row in rows})
    y_ticks, high = ticks(max(float(row["mpps"]) for row in rows))
    x, y = drawing.panel(
        0, "", "functions in the chain", "Mpps", (min(lengths) - 0.2, max(lengths) + 0.2), (0, high),
        [(length, length) for length in lengths], y_ticks,
    )
    rates = {(row["setup"], int(row["length"])): float(row["mpps"]) for row in rows}
    for number, name in enumerate(series):
        points = [(x(length), y(rates[name, length])) for length in lengths]
        drawing.parts.append(polyline(points, COLOURS[number]))
        drawing.parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{COLOURS[number]}"/>' for a, b in points]
    drawing.finish(
        series,
        "Packets a second of chains of longest-prefix match over 16,000 prefixes. Run to completion: each core runs the whole "
        "chain. Threads and processes: a manager and each function are a thread or process, with rings between them and without "
        "copies; they take this machine's cores in turn, so that beyond as many as it has cores, several share one. The paper has "
        "a core for each. What it shows with more cores, a manager that is the bottleneck, two cores cannot show. The first two "
        "are this library, the others C.",
        path,
    )
    print(f"{'Mpps':22}" + "".join(f"{length:>9} LPM" for length in lengths))
    for name in series:
        print(f"{name:22}" + "".join(f"{rates[name, length]:13.2f}" for length in lengths))
    for first, others in (("run-to-completion", ["threads"]), ("c-run-to-completion", ["c-threads", "c-processes"])):
        for other in others:
            if all((name, length) in rates for name in (first, other) for length in lengths):
                times = "".join(f"{rates[first, length] / rates[other, length]:12.1f}x" for length in lengths)
                print(f"{'over ' + other:22}{times}")
    print("the paper: run to completion can double throughput with fewer cores")


def figure_2(rows, path):
    drawing = Drawing("Tenants in batches of 128 packets (the paper's Figure 2)", 2, 2)
    series = in_order(rows, "series")
    place = 0
    for count, label in (("tenants", "tenants in a batch"), ("packets", "packets of a tenant in a batch")):
        for by in ("source", "destination"):
            y_ticks = [(share / 4, f"{share / 4:g}") for share in range(5)]
            # Most tenants have few packets: powers of two show them.
            few = count == "packets"
            log = (lambda value: math.log2(max(value, 0.7))) if few else (lambda value: value)
            x_ticks = [(log(value), value) for value in ((1, 2, 4, 8, 16, 32, 64, 128) if few else range(0, 129, 32))]
            at, y = drawing.panel(
                place, f"by {by} system", label, "share", (log(0), log(128)), (0, 1), x_ticks, y_ticks
            )
            x = lambda value, at=at, log=log: at(log(value))
            place += 1
            for number, name in enumerate(series):
                chosen = [row for row in rows if (row["count"], row["tenant_by"], row["series"]) == (count, by, name)]
                points, last = [(x(0), y(0))], 0
                for row in chosen:
                    value, share = float(row["value"]), float(row["share"])
                    points += [(x(value), y(last)), (x(value), y(share))]
                    last = share
                points.append((x(128), y(last)))
                drawing.parts.append(polyline(points, COLOURS[number]))
    drawing.finish(
        series,
        "Distributions over batches of 128 packets (above), and over tenants of batches (below); each autonomous system is a "
        "tenant. One queue, 8 queues by a hash of the 5-tuple (RSS), ideal filters that lead each tenant to one of 8 or 64 queues, with all of the trace known beforehand, and "
        "this library's demultiplexer with a queue for each of the 1,000 most frequent tenants and 1,024 or 4,096 packets on "
        "their way. Without a capture the trace is a seeded model of a backbone (README.md); the paper's is CAIDA's of "
        "2016-01-21. But for the demultiplexer's, the shapes depend on the trace and not on this machine.",
        path,
    )
    print(f"{'means':22}{'tenants a batch':>24}{'packets of each':>24}{'beside a packet':>24}")
    print(f"{'':22}" + f"{'by source':>12}{'destination':>12}" * 3)
    means = {(row["count"], row["tenant_by"], row["series"]): float(row["value"]) for row in rows if "-" in row["count"]}
    kinds = ("tenants-mean", "packets-mean", "packets-beside")
    for name in series:
        cells = [means[kind, by, name] for kind in kinds for by in ("source", "destination")]
        print(f"{name:22}" + "".join(f"{cell:12.1f}" for cell in cells))
    print("the paper: more source systems than destinations; RSS has minimal impact on the packets of each")


def figures_5_and_6(rows, path):
    functions, modes = in_order(rows, "function"), in_order(rows, "mode")
    bursts = in_order(rows, "burst")
    drawing = Drawing("Functions by mode, relative to native C (the paper's Figures 5 and 6)", 2, (len(functions) + 1) // 2)
    theirs = paper({"5", "6"})
    ours = {(row["function"], row["mode"], row["burst"]): row for row in rows}
    high = max(1.25, max(float(row["ratio_to_native"]) for row in rows) * 1.05)
    y_ticks = [(tick / 4, f"{tick / 4:g}") for tick in range(int(high * 4) + 1)]
    for place, function in enumerate(functions):
        native = ", ".join(f"{float(ours[function, 'native', burst]['ns_per_packet']):.1f}" for burst in bursts)
        x, y = drawing.panel(
            place, f"{function} (native: {native} ns)", "burst", "throughput / native", (0, len(bursts)), (0, high),
            [(number + 0.5, burst) for number, burst in enumerate(bursts)], y_ticks,
        )
        width = 0.84 / len(modes)
        for group, burst in enumerate(bursts):
            for number, mode in enumerate(modes):
                row = ours.get((function, mode, burst))
                left = group + 0.08 + number * width
                if row:
                    top = y(float(row["ratio_to_native"]))
                    drawing.parts.append(bar(x(left), top, x(left + width * 0.9) - x(left), y(0), COLOURS[number]))
                known = theirs.get((function, mode), {}).get("paper")
                if known:
                    at = y(float(known))
                    drawing.parts.append(line(x(left), at, x(left + width * 0.9), at, "#000000", 2))
        drawing.parts.append(line(x(0), y(1), x(len(bursts)), y(1), "#000000", 1, "3 3"))
    drawing.finish(
        modes,
        "Throughput relative to the module's source in C as native code in the same graph: medians of rounds in turn on one core, "
        "receive and send included, frames of 60 bytes, 65,536 flows. mapped and copy are WebAssembly with pre-emption, their copies of packets included. checked "
        "and write-only are the source in C with bounds checks in software before each read and write, or write: the paper's "
        "FastPaas/RW and /WOnly without MPX, for comparison; they are no mode of the product. Black marks: the paper's values, on "
        "its machine.",
        path,
    )
    print(f"{'ratio to native':22}" + "".join(f"{'burst ' + burst:>11}" for burst in bursts) + f"{'paper':>8}{'goal':>7}")
    for function in functions:
        for mode in modes:
            cells = [ours.get((function, mode, burst)) for burst in bursts]
            known = theirs.get((function, mode), {})
            ratios = "".join(f"{float(row['ratio_to_native']):11.2f}" if row else f"{'':11}" for row in cells)
            print(f"{function + ' ' + mode:22}{ratios}{known.get('paper', ''):>8}{known.get('goal', ''):>7}")
    lost = sum(int(row["dropped"]) for row in rows)
    if lost:
        print(f"{lost} packets were dropped: a module was ended while this thread waited for its core; such rows are too slow")


def figure_7(rows, path):
    modes = in_order(rows, "mode")
    theirs = paper({"7"})
    rates = {mode: [float(row["mpps"]) for row in rows if row["mode"] == mode] for mode in modes}
    native = statistics.median(rates["native"])
    y_ticks, high = ticks(max(max(values) for values in rates.values()))
    drawing = Drawing("The policer on real packets (the paper's Figure 7)", 1, 1)
    x, y = drawing.panel(0, "", "mode", "Mpps", (0, len(modes)), (0, high), [(n + 0.5, mode) for n, mode in enumerate(modes)], y_ticks)
    offered = statistics.median(float(row["offered_mpps"]) for row in rows)
    print(f"{'Mpps':22}{'median':>9}{'least':>9}{'most':>9}{'ratio':>9}{'paper':>8}")
    for number, mode in enumerate(modes):
        middle = statistics.median(rates[mode])
        drawing.parts.append(bar(x(number + 0.2), y(middle), x(number + 0.8) - x(number + 0.2), y(0), COLOURS[number]))
        ends = y(min(rates[mode])), y(max(rates[mode]))
        drawing.parts.append(line(x(number + 0.5), ends[0], x(number + 0.5), ends[1], "#000000"))
        known = theirs.get(("policer", mode), {}).get("paper")
        if known and native:
            at = y(float(known) * native)
            drawing.parts.append(line(x(number + 0.2), at, x(number + 0.8), at, "#000000", 2, "4 2"))
        numbers = f"{middle:9.3f}{min(rates[mode]):9.3f}{max(rates[mode]):9.3f}"
        print(f"{mode:22}{numbers}{middle / native if native else 0:9.2f}{known or '':>8}")
    print(f"offered: {offered:.3f} Mpps. Where both are about the same, the generator was the limit.")
    drawing.finish(
        modes,
        f"Packets a second that came out behind two veth pairs and AF_XDP in copy mode, of {offered:.2f} Mpps offered, with the "
        "range of the rounds. The kernel's path and the generator limit all modes here: a packet costs the kernel several times "
        "what the policer costs, so that the differences are smaller than in Figure 6. The paper has a 10 Gb/s card with DPDK and "
        "another machine as the generator. Dashed marks: the paper's values relative to native.",
        path,
    )


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("1", "2", "5", "7"):
        sys.exit("usage: draw.py 1|2|5|7 CSV SVG")
    figure, source, target = sys.argv[1:]
    {"1": figure_1, "2": figure_2, "5": figures_5_and_6, "7": figure_7}[figure](read(source), target)


if __name__ == "__main__":
    main()
