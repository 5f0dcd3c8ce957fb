"""The benchmark data sets, with one entry for each."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pandas as pd

from fairconstrained.datasets import sources

Group = Callable[[pd.DataFrame], pd.Series]


def table(texts: Sequence[str]) -> pd.DataFrame:
    """Read comma-separated text. Empty fields are missing; the ``?`` of Adult is a value."""
    (text,) = texts  # a repeated column name (both COMPAS tables) gets ".1" appended
    return pd.read_csv(io.StringIO(text))


@dataclass(frozen=True)
class File:
    """One file of a data set.

    A packed file is identified by its SHA-256. A download has another format, so it is converted,
    and identified by the SHA-256 of its header and sorted rows.
    """

    path: str  # below the data folder
    sha256: str  # checksum of the packed file as distributed with the benchmarks
    content: str  # `content_hash` of its text
    url: str  # address of the public source
    convert: Callable[[bytes], str]  # from the bytes at `url` to the text of this file


@dataclass(frozen=True)
class Dataset:
    """Description of one data set, for the loader and for users.

    Several columns in one string are separated by spaces.
    """

    title: str
    source: str
    licence: str
    caution: str  # harms, limits and traps
    files: tuple[File, ...]  # in the order in which `parse` takes their texts
    target: str  # column of the label, which is never a feature
    target_names: tuple[str, str]  # meanings of 0 and 1
    sensitive: str  # the sensitive feature of the benchmarks
    # Sensitive features with readable values that are not columns of the table.
    groups: Mapping[str, Group] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # columns for each reason
    codes: str = ""  # numeric columns that hold codes of categories
    # From the column of the label to booleans.
    positive: Callable[[pd.Series], pd.Series] = lambda label: label == 1
    parse: Callable[[Sequence[str]], pd.DataFrame] = table  # from the texts of the files


def one_file(
    path: str, sha256: str, content: str, url: str, convert: Callable[[bytes], str]
) -> tuple[File, ...]:
    """Return the only file of a data set."""
    return (File(path, sha256, content, url, convert),)


def decode(column: str, *words: str, first: int = 0) -> Group:
    """Return a function that replaces the codes `first`, `first` + 1, ... of a column by words."""
    return lambda frame: frame[column].map(dict(enumerate(words, start=first)))


def either(is_first: Group, first: str, other: str) -> Group:
    """Return a function that forms two groups: `first` where `is_first` holds, and `other`."""
    return lambda frame: is_first(frame).map({True: first, False: other})


_UCI = "https://archive.ics.uci.edu/static/public"
_GITHUB = "https://raw.githubusercontent.com"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_CENSUS = "https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year"

_COMPAS = Dataset(
    title="COMPAS, recidivism within two years",
    source="ProPublica, Machine Bias: compas-scores-two-years.csv (Broward County, Florida)",
    licence="none stated; published by ProPublica as the data behind its article",
    caution=(
        "The label is a new arrest, not a new crime: arrests depend on policing, which differs by "
        "race and neighbourhood, so a classifier that fits the label well may repeat that "
        "difference. Race was recorded by officials. Names, birthdays and case numbers were "
        "removed. The row filter of the ProPublica article is not applied. Do not use models of "
        "these data to judge people."
    ),
    files=one_file(
        "compas/compas-scores-two-years.csv.gz",
        "e6afe34c6f68e873e89b0a6c6981446564d0ebc8eba5f81f282706d92f1757b3",
        "07572f2cc3667a907344fa8971498f5ad696e625cced61ecc065f162c45dc41b",
        f"{_GITHUB}/propublica/compas-analysis/master/compas-scores-two-years.csv",
        sources.compas,
    ),
    target="two_year_recid",
    target_names=("no new arrest", "new arrest"),
    sensitive="caucasian",
    groups={
        # The attribute of the AUC benchmark; "race" has all six groups, some of them tiny.
        "caucasian": either(lambda t: t["race"] == "Caucasian", "Caucasian", "non-Caucasian")
    },
    left_out={
        "identifier": "id",
        "output of the COMPAS tool that the data were collected to audit": (
            "decile_score decile_score.1 score_text type_of_assessment v_decile_score v_score_text "
            "v_type_of_assessment"
        ),
        "known only after the screening": (
            "is_recid two_year_recid r_charge_degree r_days_from_arrest r_offense_date "
            "r_charge_desc r_jail_in r_jail_out violent_recid is_violent_recid vr_charge_degree "
            "vr_offense_date vr_charge_desc num_r_cases num_vr_cases start end event in_custody "
            "out_custody"
        ),
        "dates and durations, partly missing": (
            "compas_screening_date screening_date v_screening_date days_b_screening_arrest "
            "c_jail_in c_jail_out c_offense_date c_arrest_date c_days_from_compas"
        ),
        "free text": "c_charge_desc",
        "copy of another column": "priors_count.1",
    },
)

DATASETS: Mapping[str, Dataset] = {
    "adult": Dataset(
        title="Adult (Census Income)",
        source="UCI repository, data set 2; extract of the 1994 US census by B. Becker, R. Kohavi",
        licence="CC BY 4.0",
        caution=(
            "The label is income above 50,000 dollars of 1994, which few Black and few female "
            "people reached: group gaps depend on this threshold (Ding et al. 2021). Sex and race "
            "are the categories of that census. '?' is kept as a category. The column split says "
            "which rows are UCI's training and test rows."
        ),
        files=one_file(
            "adult/adult.csv.gz",
            "ae0655a69eefdf7e0186431236d13982bc29cb8c1ab2dcc1bd68dae2ecec0d92",
            "a869c9cfd0be917e3143d806e6720a76b81f9b98ec719fec9f414557c2eb44f9",
            f"{_UCI}/2/adult.zip",
            sources.adult,
        ),
        target="income",
        positive=lambda label: label == ">50K",
        target_names=("<=50K", ">50K"),
        sensitive="sex",
        left_out={"sampling weight of the census": "fnlwgt", "UCI's own split": "split"},
    ),
    "a9a": Dataset(
        title="a9a (Adult with binary features)",
        source="LIBSVM data page; UCI Adult as binarised by J. Platt",
        licence="derived from CC BY 4.0 data",
        caution="See adult, whose rows these are in the same order. split says train or test.",
        files=(
            File(
                "a9a/a9a_train.libsvm.gz",
                "82d347cf414924a79e7972829fdeb99ff23346742c49a3bc76b89ff8736a485e",
                "04652fa707a18769cabe92d7c368adf5902cfe4a4ef5bc5650dae2b13ab4f7e2",
                f"{_LIBSVM}/a9a",
                sources.a9a,
            ),
            File(
                "a9a/a9a_test.libsvm.gz",
                "2d439a12c559bb9b33fd0edc9ee6634794be60ff6f41335da0e38eb1e9f336dc",
                "91cd9b6843e62cb61dc579ebec92bbd5a82ca1a381b630f695428879df670ee3",
                f"{_LIBSVM}/a9a.t",
                sources.a9a,
            ),
        ),
        target="label",
        target_names=("<=50K", ">50K"),
        sensitive="sex",
        # There is no such column, only its indicators.
        groups={name: partial(sources.active_category, name=name) for name in ("sex", "race")},
        left_out={"LIBSVM's own split": "split"},
        parse=sources.a9a_frame,
    ),
    "bank": Dataset(
        title="Bank Marketing",
        source="UCI repository, data set 222, bank-additional-full; Moro, Cortez, Rita (2014)",
        licence="CC BY 4.0",
        caution=(
            "Phone calls of one Portuguese bank, 2008 to 2010. Age is the usual sensitive feature, "
            "split at 25 to 60 years (both included) against the others; the 'others' mix the "
            "young with the old. 'unknown' is kept as a category."
        ),
        files=one_file(
            "bank/bank.csv.gz",
            "0ee5532b1a7c1e95b9c9806c334ff394c3791297f413725dfe3cbd9e7b7d3805",
            "cf704a478ff404da7fa313b81f06966e6d760021554d5db7f55c671c6ea8e0e2",
            f"{_UCI}/222/bank+marketing.zip",
            sources.bank,
        ),
        target="y",
        positive=lambda label: label == "yes",
        target_names=("no", "yes"),
        sensitive="age_25_60",
        groups={"age_25_60": either(lambda t: t["age"].between(25, 60), "25 to 60", "other")},
        left_out={"known only after the call, and gives its outcome away": "duration"},
    ),
    "compas": _COMPAS,
    "compas_scores": replace(
        _COMPAS,
        title="COMPAS, recidivism of all people scored",
        source="ProPublica, Machine Bias: compas-scores.csv (Broward County, Florida)",
        caution=(
            f"{_COMPAS.caution} The 719 of 11,757 rows whose outcome is unknown (is_recid is -1) "
            "are left out; people were followed for different lengths of time."
        ),
        files=one_file(
            "compas/compas-scores.csv.gz",
            "f8cd1ab2bb9d4478f5ef479a52f99d725f7b0dbf395898fb5976cf8172f8941a",
            "5bcfddf137b15e6655130abaee87195cef0c75c975a61f49283408881489003e",
            f"{_GITHUB}/propublica/compas-analysis/master/compas-scores.csv",
            sources.compas,
        ),
        target="is_recid",
        # The outcome of the others is unknown.
        parse=lambda texts: table(texts).query("is_recid >= 0").reset_index(drop=True),
    ),
    "law_school": Dataset(
        title="Law School (bar passage)",
        source="LSAC National Longitudinal Bar Passage Study (Wightman 1998), cleaned by Le Quy "
        "et al. (2022)",
        licence="none stated; widely used in research",
        caution=(
            "Students who entered US law schools in 1991; 89 % passed. All people of colour are "
            "one group. Grades (zgpa, zfygpa, deciles) are earned before the exam but late in the "
            "study, so this is no model of admission."
        ),
        files=one_file(
            "law_school/law_school.csv.gz",
            "752c015e92072fb5869885619ebc33ae1240717dbdf9be9f1313c5003cf86c84",
            "1659f48fdce08210739ca020913381cd1c5323b56986df2911e042fe37c50472",
            f"{_GITHUB}/tailequy/fairness_dataset/main/experiments/data/law_school_clean.csv",
            sources.plain_csv,
        ),
        target="pass_bar",
        target_names=("failed", "passed"),
        sensitive="race",
        groups={"male": decode("male", "female", "male")},
    ),
    "credit_card": Dataset(
        title="Default of Credit Card Clients",
        source="UCI repository, data set 350; Yeh and Lien (2009), in the copy of Le Quy et al.",
        licence="CC BY 4.0",
        caution=(
            "One bank in Taiwan, April to September 2005; the label is the default of October. "
            "EDUCATION (0, 5, 6), MARRIAGE (0) and the payment states PAY_* (-2, 0) have codes "
            "that the source does not document."
        ),
        files=one_file(
            "credit_card/credit_card.csv.gz",
            "aa5a60f99526a6727642474f9e05bca1c1c4dae54c851d5de70c236ec0882324",
            "deb73a2ab97e032e9a2ed27044f92971503126a0fb9f5ee273940f0a020a69cb",
            f"{_GITHUB}/tailequy/fairness_dataset/main/experiments/data/credit-card-clients.csv",
            sources.plain_csv,
        ),
        target="default payment",
        target_names=("paid", "default"),
        sensitive="SEX",
        # Some copies of these data have other codes for SEX.
        groups={"SEX": decode("SEX", "male", "female", first=1)},
        codes="SEX EDUCATION MARRIAGE PAY_0 PAY_2 PAY_3 PAY_4 PAY_5 PAY_6",
    ),
    "parkinsons": Dataset(
        title="Parkinsons Telemonitoring",
        source="UCI repository, data set 189; Tsanas, Little, McSharry, Ramig (2009)",
        licence="CC BY 4.0",
        caution=(
            "42 patients with about 140 recordings each: rows are not independent, so split by the "
            "column subject# of frame. The label is total_UPDRS above its median over all rows. "
            "motor_UPDRS, a part of that score, is among the features as in the benchmarks; "
            "drop='motor_UPDRS' leaves it out."
        ),
        files=one_file(
            "parkinsons/parkinsons.csv.gz",
            "d8c5f713f9480a2543eb00ab691cb3d8f6b49048231185082650d6496b8ad60a",
            "684efaf3d46b90db037a2168a940f93b53d986d3e4b70b98e5b7976ab8be2e8e",
            f"{_UCI}/189/parkinsons+telemonitoring.zip",
            sources.table_in("parkinsons_updrs.data"),
        ),
        target="total_UPDRS",
        positive=lambda label: label > label.median(),
        target_names=("up to the median", "above the median"),
        sensitive="sex",
        groups={"sex": decode("sex", "male", "female")},
        left_out={"identifies the patient": "subject#"},
    ),
    "acs_income_ok": Dataset(
        title="ACSIncome, Oklahoma 2018",
        source="American Community Survey PUMS, 2018, 1-year, persons; task of Ding et al. (2021)",
        licence="US government work, public domain",
        caution=(
            "Adults who work and earn; the label is income above 50,000 dollars. Two columns are "
            "coarser than in the survey: MAR is 1 for married and 2 for all others; RAC1P has five "
            "groups. Survey weights are not used. A downloaded copy has the rows in the order of "
            "the census, the benchmark file has them shuffled: shuffle before you split."
        ),
        files=one_file(
            "acs_income_ok/acs_income_ok.csv.gz",
            "319b8f21db87609d451e75f7a8327d1fffcb852260e48b137d87361dd8c6349d",
            "3e2e81205aa7d1395756815d8347fce353a80931e8fbc3714b78ca4e382673e6",
            f"{_CENSUS}/csv_pok.zip",
            sources.acs_income_ok,
        ),
        target="PINCP",
        positive=lambda label: label,
        target_names=("<=50,000", ">50,000"),
        sensitive="RAC1P",
        groups={
            # The benchmark has five codes of its own, the survey nine.
            "RAC1P": decode("RAC1P", "White", "Black", "Asian", "Native", "other", first=1),
            "white": either(lambda t: t["RAC1P"] == 1, "White", "non-White"),
            "SEX": decode("SEX", "male", "female", first=1),
        },
        codes="COW MAR OCCP POBP RELP SEX RAC1P",
    ),
    "heart": Dataset(
        title="Heart Disease Health Indicators (BRFSS 2015)",
        source="CDC Behavioral Risk Factor Surveillance System 2015, extract by A. Teboul",
        licence="US government work; the extract was published as CC0",
        caution=(
            "Answers given on the telephone: the label is a diagnosis that people reported, so "
            "undiagnosed disease counts as healthy, which may differ by group. All columns are "
            "written as decimals; Age (13 bands), Education, Income and GenHlth are ordered codes."
        ),
        files=one_file(
            "heart/heart.csv.gz",
            "a2c269f923c2314788efa901cfb629477620adc3c2b8970339abcf30e86f483d",
            "4cac42dc08bdaaf54366a906fdd9d09f42c686f43cca1b5858a109ca8a3b67fe",
            f"{_GITHUB}/Daniel-Harrod13/Final-Project/212ac889c9732256de2848b1fc44f458e406af7c/"
            "heart_disease_health_indicators_BRFSS2015.csv.zip",
            sources.table_in("heart_disease_health_indicators_BRFSS2015.csv"),
        ),
        target="HeartDiseaseorAttack",
        target_names=("no", "reported"),
        sensitive="Sex",
        groups={
            "Sex": decode("Sex", "female", "male"),
            "Age": decode(
                "Age",
                *("18-24", "25-29", "30-34", "35-39", "40-44", "45-49", "50-54"),
                *("55-59", "60-64", "65-69", "70-74", "75-79", "80+"),
                first=1,
            ),
        },
    ),
}
