import re
import runpy
from pathlib import Path

from clozemill.analysis.questions import CONDITIONS, Kind, all_questions

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")


def test_the_page_lists_the_questions_as_their_files_have_them() -> None:
    make = runpy.run_path(str(ROOT / "docs" / "make_audit.py"))
    assert make["audit_page"](PAGE) == PAGE, "run `python docs/make_audit.py`"


def test_the_page_names_every_question_once_and_every_kind() -> None:
    names = re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)
    assert sorted(names) == sorted(question.name for question in all_questions())
    needs = re.findall(r"^\| `(\w+)` \| [^|]* \|$", PAGE, re.MULTILINE)
    assert sorted(needs) == sorted(CONDITIONS)
    kinds = re.findall(r"^\| `(\w+)` \| [^|]* \| [^|]* \|$", PAGE, re.MULTILINE)
    assert kinds == [kind.value for kind in Kind]
