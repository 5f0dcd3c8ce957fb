"""The page on paper, by Chromium: all columns are there, and no page is mostly empty."""

import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

import fairconstrained

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
if not CHROMIUM or not shutil.which("pdftotext"):
    pytest.skip("no Chromium, or no pdftotext (of poppler-utils)", allow_module_level=True)

RACES = ["African-American", "Asian", "Caucasian", "Hispanic", "Native American", "Other"]
AGES = ["Less than 25", "25 - 45", "Greater than 45"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    rng, n = np.random.default_rng(0), 4000
    people = pd.DataFrame({"race": rng.choice(RACES, n), "age_category": rng.choice(AGES, n)})
    score = rng.random(n)
    audit = fairconstrained.report(
        pd.Series(np.where(rng.random(n) < score, "repaid", "unpaid"), name="outcome"),
        pd.Series(np.where(score > 0.5, "favourable", "unfavourable"), name="decision"),
        pos_label=["favourable", "repaid"],
        sensitive_features=people,
        y_score=score,
        before=np.where(score > 0.6, "favourable", "unfavourable"),
        slack=0.05,
    )
    folder = tmp_path_factory.mktemp("print")
    (folder / "audit.html").write_text(audit.to_html(), "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    options += [f"--print-to-pdf={folder / 'audit.pdf'}", folder / "audit.html"]
    subprocess.run([CHROMIUM, *options], check=True, capture_output=True, timeout=300)
    command = ["pdftotext", "-layout", folder / "audit.pdf", "-"]
    texts = subprocess.check_output(command).decode().rstrip("\f").split("\f")
    return [[line for line in text.splitlines() if line.strip()] for text in texts]


def test_all_columns_and_whole_words_are_printed_and_no_page_is_mostly_empty(pages):
    text = "\n".join(line for page in pages for line in page)
    headers = [line for line in text.splitlines() if "kept it" in line]
    assert headers
    assert all(line.rstrip().endswith("change") for line in headers)
    assert "refused" in text.split("Errors by race")[1].split("Errors by age")[0]
    assert len(re.findall(r"[-\d.]+ points$", text, re.MULTILINE)) > 20  # the last column
    assert not re.search(r"\b(favoura|unfavoura|Cauca|Hispa|Ameri)\b", text)
    assert min(len(page) for page in pages[:-1]) > 20
    assert len(pages) < 16
