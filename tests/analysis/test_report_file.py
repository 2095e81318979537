import os
from pathlib import Path

import pytest
from tests.analysis.small_findings import small_findings

from clozemill.analysis.report import write_study_report
from clozemill.analysis.report_file import check_page
from clozemill.pipeline.errors import ConfigError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("manifest.json", "train-00000-000.arrow"):
        (folder / name).write_text("{}")
    return folder


def refused(page: Path, data: Path, *studies: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        check_page(page, dataset=data, studies=studies)
    return str(raised.value)


@pytest.mark.parametrize("name", ["manifest.json", "page.html", "new/page.html"])
def test_a_page_inside_the_dataset_is_refused(data: Path, name: str) -> None:
    assert refused(data / name, data) == (
        f"{data / name} lies inside the dataset {data}, which can hold nothing else; choose "
        "another --html."
    )


def test_a_page_inside_another_dataset_or_behind_a_link_is_refused(
    data: Path, tmp_path: Path
) -> None:
    assert "lies inside the dataset" in refused(data / "page.html", tmp_path / "other")
    (tmp_path / "link").symlink_to(data)
    assert "lies inside the dataset" in refused(tmp_path / "link" / "page.html", data)
    (tmp_path / "page.html").symlink_to(data / "manifest.json")
    assert "lies inside the dataset" in refused(tmp_path / "page.html", data)


@pytest.mark.parametrize("name", ["study.json", "plan.json", ".lock", "arms/page.html"])
def test_files_of_a_study_are_not_replaced_even_before_they_are_there(
    data: Path, tmp_path: Path, name: str
) -> None:
    study = tmp_path / "study"
    assert refused(study / name, data, study) == (
        f"{study / name} lies among the files of the study {study}; name a page in it "
        f"{study}/NAME.html, or choose another --html."
    )


def test_a_page_may_stand_in_the_folder_that_a_study_will_make(data: Path, tmp_path: Path) -> None:
    check_page(tmp_path / "study" / "page.html", dataset=data, studies=[tmp_path / "study"])
    assert "there is no folder" in refused(tmp_path / "study" / "page.html", data)


def test_only_a_page_of_ours_is_replaced(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    check_page(page, dataset=data)
    write_study_report(page, "study", small_findings(2))
    check_page(page, dataset=data)
    page.write_text("<!doctype html>\n<title>of somebody else</title>")
    assert refused(page, data) == (
        f"{page} exists and is no page of clozemill; remove it, or choose another --html."
    )


def test_what_is_no_file_is_refused(data: Path, tmp_path: Path) -> None:
    assert refused(tmp_path, data) == (
        f"{tmp_path} is a folder; name a file, such as {tmp_path}/page.html."
    )
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is no page of clozemill" in refused(pipe, data)
    assert "cannot write " in refused(tmp_path / ("a" * 300), data)
    assert "is not UTF-8" in refused(tmp_path / "\udcff.html", data)


def test_a_folder_that_is_missing_is_named(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "none" / "page.html"
    assert refused(page, data) == (
        f"there is no folder {page.parent} for {page}; make it, or choose another --html."
    )
    (tmp_path / "file").touch()
    assert "there is no folder" in refused(tmp_path / "file" / "page.html", data)
