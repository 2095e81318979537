import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_settings_is_what_the_record_says() -> None:
    make = runpy.run_path(str(ROOT / "docs" / "make_settings.py"))
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == make["settings_page"](), "run `python docs/make_settings.py`"
