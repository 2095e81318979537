"""Writes the lists of questions in docs/audit.md from the files that ask them."""

import sys
from collections.abc import Iterator
from pathlib import Path

from clozemill.analysis.questions import Question, all_questions

PAGE = Path(__file__).with_name("audit.md")
BEGIN = "## Questions about masks\n"


def audit_page(page: str) -> str:
    """Return the page with all questions in place of those it lists."""
    head = page.split(BEGIN)[0]
    of_masks = [question for question in all_questions() if "variants" in question.needs]
    others = [question for question in all_questions() if "variants" not in question.needs]
    lines = [BEGIN]
    for question in of_masks:
        lines += _paragraphs(question)
    lines.append("## Questions about documents, pairs and rows\n")
    for question in others:
        lines += _paragraphs(question)
    return head + "\n".join(lines)


def _paragraphs(question: Question) -> Iterator[str]:
    yield f"### {question.name}\n"
    yield f"{question.question}\n"
    needs = f" Needs: {', '.join(question.needs)}." if question.needs else ""
    yield f"*{question.kind.value}*, {question.grain}. Passes: {question.passes}.{needs}\n"
    if question.failure:
        yield f"A failure points to {question.failure}\n"
    if question.law:
        yield f"{question.law}\n"


if __name__ == "__main__":
    PAGE.write_text(audit_page(PAGE.read_text("utf-8")), "utf-8")
    print(f"{PAGE} is written.", file=sys.stderr)
