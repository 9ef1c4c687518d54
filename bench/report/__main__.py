"""everleaf report: results as one HTML page with charts."""

import argparse
import os
import sys

import results

EXIT_USAGE = 2
EXIT_IO = 3


def fail(code, message):
    print(f"everleaf-report: {message}", file=sys.stderr)
    sys.exit(code)


def load_charts():
    """Debian's matplotlib belongs to its own Python, which need not be the first on the path."""
    try:
        import document
        return document
    except ImportError as error:
        system = "/usr/bin/python3"
        if os.path.realpath(sys.executable) != os.path.realpath(system) and os.access(system, os.X_OK):
            os.execv(system, [system, *sys.argv])
        fail(EXIT_IO, f"{error}: `scripts/bootstrap bench`, apt-get install python3-matplotlib or pip "
                      "install matplotlib brings it")


def main():
    parser = argparse.ArgumentParser(
        prog="everleaf report", description="Results of `everleaf bench --json`, `everleaf traffic --json` "
        "and `everleaf paper --json` as one HTML page with charts that needs no network.",
        epilog="Exit codes: 0 done; 2 bad usage, a file that does not hold results; 3 a file cannot be read "
        "or written, matplotlib is missing")
    parser.add_argument("results", nargs="+", metavar="RESULTS.json")
    parser.add_argument("-o", "--output", default="report.html", help="default: report.html")
    options = parser.parse_args()
    try:
        found = results.read(options.results)
    except results.WrongFile as error:
        fail(EXIT_USAGE, str(error).replace("\n", " "))
    except OSError as error:
        fail(EXIT_IO, f"cannot read {error.filename}: {error.strerror}")
    text = load_charts().page(found)
    try:
        with open(options.output + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(options.output + ".part", options.output)
    except OSError as error:
        fail(EXIT_IO, f"cannot write to {options.output}: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
