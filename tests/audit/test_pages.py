"""The page: one file, in order, complete, and readable without a picture or a script."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import fairconstrained

N = 600
RNG = np.random.default_rng(0)
GROUP = np.where(RNG.random(N) < 0.5, "<b>", "a|b")
ORDER = [
    *("In short", "Rates by group", "Ratios", "Errors of each kind", "Calibration by group"),
    *("Who changed", "What holds for future cases", "Assumptions", "Limits"),
    *("Left out, and why", "Provenance"),
]


@pytest.fixture(scope="module")
def audit():
    score = RNG.random(N)
    pred = np.where(np.arange(N) == 0, None, score > 0.5)
    people, label = {"sex": GROUP, "age": np.arange(N) % 3}, RNG.random(N) < score
    given = {"y_score": score, "before": RNG.random(N) > 0.5, "slack": 0.05}
    return fairconstrained.report(label, pred, sensitive_features=people, **given)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1], data))

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def test_the_page_needs_no_other_file_and_no_script(audit):
    page = Page(audit.to_html())
    assert not page.open
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not re.search(r"https?://|@import|url\(", audit.to_html())
    assert "prefers-color-scheme: dark" in audit.to_html()
    assert "@media print" in audit.to_html()
    frame = Page(audit._repr_html_()).all("iframe")[0]  # in a notebook
    assert frame["srcdoc"] == audit.to_html()


def test_headings_are_in_order_and_tables_have_theirs(audit):
    page = Page(audit.to_html())
    assert [text for tag, text in page.texts if tag == "h1"] == ["Audit of decisions"]
    assert [text for tag, text in page.texts if tag == "h2"] == ORDER
    assert {attrs["scope"] for attrs in page.all("th")} == {"col", "row"}
    assert len(page.all("caption")) == len(page.all("table")) > 10
    assert page.all("html") == [{"lang": "en"}]


def test_pictures_say_in_words_what_they_show(audit):
    pictures = [attrs for attrs in Page(audit.to_html()).all("div") if attrs.get("role") == "img"]
    gaps, *pictures = (attrs["aria-label"] for attrs in pictures)
    assert gaps.startswith("Largest gap (demographic parity), in points: by sex ")
    assert len(pictures) == 3
    for label, attribute in zip(pictures, ("sex", "age", "sex & age"), strict=True):
        assert label.startswith(f"Rates of decision = True by {attribute}: ")
    assert f"{100 * audit.groups[1]['selection_rate']:.1f} %" in pictures[0]


def test_a_column_may_be_called_everybody():
    decided, group = np.arange(80) % 2, pd.Series(np.repeat(["a", "b"], 40), name="everybody")
    page = fairconstrained.report(y_pred=decided, sensitive_features=group).to_markdown()
    assert page.count("| a | 40 | 50.0 % (") == 1
    assert page.count("| everybody | 80 | 50.0 % (") == 1


def test_a_group_called_everybody_is_not_the_row_of_all():
    group = np.repeat(["a", "everybody"], 40)
    people = pd.DataFrame({"everybody": group, "other": group[::-1]})
    audit = fairconstrained.report(y_pred=(group == "a").astype(int), sensitive_features=people)
    rows = [(row["attribute"], row["group"], row["samples"]) for row in audit.groups]
    assert rows[0] == ("everybody: all rows", "everybody: all rows", 80)
    assert rows.count(("everybody", "everybody", 40)) == rows.count(("other", "everybody", 40)) == 1
    page = audit.to_markdown()
    for shown in ("everybody | 40 | 0.0 % (", "everybody | 40 | 100.0 % ("):
        assert page.count(f"| {shown}") == 1
    assert page.count("| everybody: all rows | 80 | 50.0 % (") == 3  # by each column and by both


def test_groups_whose_names_have_the_mark_between_names_stay_apart():
    rows = [("a & b", "c"), ("a", "b & c"), ("a & b", "b & c")]
    people = pd.DataFrame(rows * 40, columns=["one", "other"])
    audit = fairconstrained.report(y_pred=[1, 0, 0] * 40, sensitive_features=people, slack=0.05)
    sizes = {"'a & b' & c": 40, "a & 'b & c'": 40, "'a & b' & 'b & c'": 40}
    assert {row["group"]: row["samples"] for row in audit.intersections} == sizes
    assert audit.certificates[-1]["groups"] == sizes
    assert audit.certificates[-1]["estimate"] == audit.differences[-1]["value"] == 1.0


def test_names_have_no_meaning_in_markdown():
    marks = ["*a*", "_b_", "$c$", "`d`", "[e](f)", "&lt;", "~~g~~", "h\\|i", "j_k\nl"]
    shown = [r"\*a\*", r"\_b\_", r"\$c\$", r"\`d\`", r"\[e](f)", r"\&lt;", r"\~\~g\~\~"]
    shown += [r"h\\\|i", "j_k l"]
    group = np.repeat(marks, 20)
    page = fairconstrained.report(y_pred=np.arange(180) % 2, sensitive_features=group).to_markdown()
    for name in shown:
        assert f"| {name} | 20 |" in page


def test_names_of_users_are_text_and_four_fifths_are_evidence(audit):
    assert "<b>" not in audit.to_html()
    assert "&lt;b&gt;" in audit.to_html()
    assert "| a\\|b |" in audit.to_markdown()
    assert "generally regard as evidence of adverse impact" in " ".join(audit.to_html().split())
    assert "compliant" not in audit.to_html() + audit.to_markdown()


def test_markdown_has_the_sentences_and_tables_of_the_page(audit):
    text = audit.to_markdown()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ORDER
    captions = [text for tag, text in Page(audit.to_html()).texts if tag == "caption"]
    assert len(re.findall(r"^\|(?: --- \|)+$", text, re.MULTILINE)) == len(captions)
    for line in (audit.question, *audit.limits, *audit.left_out):
        assert line in text
