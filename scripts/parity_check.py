#!/usr/bin/env python3
"""Compares a parity run with the promised results, or rewrites them.

parity_check.py check|--write RUN_OUTPUT EXPECTED [SECOND_RUN_OUTPUT]
parity_check.py fallen RUN_OUTPUT EXPECTED      prints the areas with fewer passes than promised

EXPECTED is docs/wire/parity.txt, with one line per area: `area passed total`. A run may pass more steps than that, never fewer.
Areas without a line promise nothing yet.

--without=AREA: this run did not include the area (its server is not available); its line is kept and not checked.

The better result of RUN_OUTPUT and SECOND_RUN_OUTPUT counts for each area. The second run is slower, one case at a time, because
asynchronous effects may be late on a busy machine.
"""
import re
import sys


def read_run(path):
    areas = {}
    for line in open(path, encoding="utf-8", errors="replace"):
        m = re.match(r"^([a-z][a-z-]*): (\d+) passed, (\d+) failed", line)
        if m:
            areas[m[1]] = (int(m[2]), int(m[2]) + int(m[3]))
    return areas


def read_expected(path):
    areas = {}
    try:
        lines = open(path, encoding="utf-8").read().splitlines()
    except FileNotFoundError:
        return areas
    for n, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].split()
        if not text:
            continue
        if len(text) != 3 or not text[1].isdigit() or not text[2].isdigit():
            sys.exit(f"{path}:{n}: expected `area passed total`, found {line!r}")
        areas[text[0]] = (int(text[1]), int(text[2]))
    return areas


def main():
    without = [a.removeprefix("--without=") for a in sys.argv[1:] if a.startswith("--without=")]
    mode, run_path, expected_path, *second = [a for a in sys.argv[1:] if not a.startswith("--without=")]
    run, expected = read_run(run_path), read_expected(expected_path)
    for area, again in (read_run(second[0]) if second else {}).items():
        run[area] = max(run.get(area, (0, 0)), again)
    for area in without:
        run.pop(area, None)
    fallen = [a for a, (p, _) in expected.items() if a not in without and run.get(a, (0, 0))[0] < p]
    if mode == "fallen":
        print(" ".join(fallen))
        return
    if not run:
        sys.exit(f"{run_path}: no totals found; did the run fail?\n" + open(run_path, errors="replace").read()[-2000:])
    for area in sorted(run):
        passed, total = run[area]
        promised = expected.get(area, (0, 0))[0]
        print(f"{area:20} {passed:5} / {total:<5} {100 * passed / max(total, 1):5.1f} %   promised {promised}")
    for area in without:
        print(f"{area:20} not run here{'':13} promised {expected.get(area, (0, 0))[0]}")
    if mode == "--write":
        run.update((a, expected[a]) for a in without if a in expected)
        with open(expected_path, "w", encoding="utf-8") as f:
            f.write("# area, steps that pass, steps in all (shared/parity, kube-apiserver v1.36.2). CI fails where fewer pass.\n")
            for area in sorted(run):
                f.write(f"{area} {run[area][0]} {run[area][1]}\n")
        return
    if fallen:
        sys.exit("fell below docs/wire/parity.txt: " + ", ".join(f"{a} {run.get(a, (0, 0))[0]} < {expected[a][0]}" for a in fallen))


main()
