"""Writes a picture of the curves of trainings, for the pages in this folder.

python docs/make_pictures.py RUN... --out docs/pictures/NAME.svg
"""

import argparse
import sys
from pathlib import Path

from clozemill.analysis.charts import svg_file
from clozemill.analysis.run_charts import curves, read_runs
from clozemill.pipeline.errors import ClozemillError


def main() -> None:
    """Write the picture that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="+", type=Path, help="folders of runs, with a metrics.jsonl")
    parser.add_argument("--out", required=True, type=Path, help="the SVG file")
    arguments = parser.parse_args()
    try:
        arguments.out.write_text(svg_file(curves(read_runs(arguments.run))), "utf-8")
    except ClozemillError as error:
        sys.exit(f"make_pictures: {error}")


if __name__ == "__main__":
    main()
