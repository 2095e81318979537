"""Writes pictures of trainings or of a study, for the pages in this folder.

python docs/make_pictures.py RUN... --out docs/pictures/NAME.svg
python docs/make_pictures.py STUDY --out docs/pictures/NAME.svg

Of a study there are several: NAME-1.svg and so on, in the order of its page.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from clozemill.analysis.charts import Chart, svg_file
from clozemill.analysis.run_charts import curves, read_runs
from clozemill.analysis.study_charts import difference_chart, study_charts
from clozemill.analysis.study_findings import read_findings
from clozemill.analysis.study_records import STUDY_NAME
from clozemill.pipeline.errors import ClozemillError


def main() -> None:
    """Write the pictures that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="+", type=Path, help="runs, or one study")
    parser.add_argument("--out", required=True, type=Path, help="the SVG file")
    arguments = parser.parse_args()
    try:
        for path, chart in pictures(arguments.folder, arguments.out):
            path.write_text(svg_file(chart), "utf-8")
            print(f"{path}: {chart.title}. {chart.description}", file=sys.stderr)
    except ClozemillError as error:
        sys.exit(f"make_pictures: {error}")


def pictures(folders: Sequence[Path], out: Path) -> Iterator[tuple[Path, Chart]]:
    """Yield each picture with the file that it goes to."""
    if not (folders[0] / STUDY_NAME).exists():
        yield out, curves(read_runs(folders))
        return
    findings = read_findings(folders[0])
    charts = [difference_chart(findings), *study_charts(findings)]
    for number, chart in enumerate(charts, start=1):
        yield out.with_stem(f"{out.stem}-{number}"), chart


if __name__ == "__main__":
    main()
