"""The real data are as documented, and what their sources send becomes the same tables."""

import gzip
import hashlib
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from fairconstrained.datasets import list_datasets, load_dataset, loading, sources
from fairconstrained.datasets.catalogue import DATASETS
from fairconstrained.datasets.loading import content_hash


def zipped(members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as target:
        for name, content in members.items():
            target.writestr(name, content)
    return packed.getvalue()


ADULT = "39, State-gov, 7, Bachelors, 13, Single, ?, Own, White, Male, 2, 0, 40, Hong, <=50K"
ACS = (
    "RT,PWGTP,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP\n"
    "P,10,17,1,16,5,0040,040,00,30,2,9,00050001\n"  # kept; income above the threshold
    "P,10,40,1,16,1,0040,040,00,30,1,6,50000\n"  # kept; not above
    "P,10,16,1,16,5,0040,040,00,30,2,9,60000\n"  # too young
    "P,10,40,1,16,5,0040,040,00,,2,9,60000\n"  # does not work
    "P,10,40,1,16,5,0040,040,00,30,2,9,100\n"  # earns next to nothing
    "P,10,12,,16,5,,040,00,,2,9,\n"  # a child
)


@pytest.mark.parametrize(
    ("convert", "source", "lines"),
    [
        (
            sources.adult,
            zipped({"adult.data": f"{ADULT}\n\n", "adult.test": f"|1x3 Cross\n{ADULT}.\n\n"}),
            [
                "age,workclass,fnlwgt,education,education-num,marital-status,occupation,"
                "relationship,race,sex,capital-gain,capital-loss,hours-per-week,native-country,"
                "income,split",
                "39,State-gov,7,Bachelors,13,Single,?,Own,White,Male,2,0,40,Hong,<=50K,train",
                "39,State-gov,7,Bachelors,13,Single,?,Own,White,Male,2,0,40,Hong,<=50K,test",
            ],
        ),
        (sources.a9a, b"-1 3:1 11:1 \n+1 5:1 123:0\n", ["-1 3:1 11:1", "+1 5:1"]),
        (
            sources.bank,
            zipped(
                {
                    "bank.zip": b"",
                    "bank-additional.zip": zipped(
                        {
                            "__MACOSX/._bank-additional-full.csv": "",
                            "bank-additional/bank-additional-full.csv": '"age";"job"\r\n'
                            '56;"admin."\r\n',
                        }
                    ),
                }
            ),
            ["age,job", "56,admin."],
        ),
        (
            sources.compas,
            b"id,name,first,last,sex,dob,c_case_number,what,r_case_number,vr_case_number\n"
            b'1,x y,x,y,Male,1947-04-18,13A,"Poss 3,4",14B,15C\n',
            ["id,sex,what", '1,Male,"Poss 3,4"'],
        ),
        (
            sources.acs_income_ok,
            zipped({"psam_p40.csv": ACS, "ACS2018_PUMS_README.pdf": b""}),
            [
                "AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP",
                "17.0,1.0,16.0,2.0,40.0,40.0,0.0,30.0,2.0,5.0,True",
                "40.0,1.0,16.0,1.0,40.0,40.0,0.0,30.0,1.0,3.0,False",
            ],
        ),
    ],
)
def test_sources_become_plain_tables(convert, source, lines):
    assert convert(source).splitlines() == lines


FACTS = {
    "adult": (48_842, 11_687, {"Male": 32_650, "Female": 16_192}, 107),
    "a9a": (48_842, 11_687, {"Male": 32_650, "Female": 16_192}, 123),
    "bank": (41_188, 4_640, {"25 to 60": 39_210, "other": 1_978}, 62),
    "compas": (7_214, 3_251, {"Caucasian": 2_454, "non-Caucasian": 4_760}, 18),
    "compas_scores": (11_757 - 719, 3_703, {"Caucasian": 3_818, "non-Caucasian": 7_220}, 19),
    "law_school": (20_798, 18_505, {"White": 17_491, "Non-White": 3_307}, 12),
    "credit_card": (30_000, 6_636, {"male": 11_888, "female": 18_112}, 91),
    "parkinsons": (5_875, 2_934, {"male": 4_008, "female": 1_867}, 20),
    "acs_income_ok": (
        17_917,
        5_059,
        {"White": 13_350, "Black": 965, "Asian": 318, "Native": 1_598, "other": 1_686},
        677,
    ),
    "heart": (253_680, 23_893, {"female": 141_974, "male": 111_706}, 21),
}


@pytest.fixture
def real():
    folder = os.environ.get(loading.ENVIRONMENT_VARIABLE)
    if not folder:
        pytest.skip(f"{loading.ENVIRONMENT_VARIABLE} is not set")
    if not Path(folder).is_dir():
        pytest.skip(f"{loading.ENVIRONMENT_VARIABLE} is {folder}, which is no folder")
    return Path(folder)


def test_every_data_set_is_tested_below():
    assert list_datasets() == sorted(FACTS)


@pytest.mark.data
@pytest.mark.parametrize("name", FACTS)
def test_counts_of_the_real_data(real, name):
    n_rows, n_positive, groups, n_columns = FACTS[name]
    bunch = load_dataset(name, download_if_missing=False, preprocess="one_hot")
    assert bunch.data.shape == (n_rows, n_columns) == (len(bunch.frame), len(bunch.feature_names))
    assert bunch.target.shape == (n_rows,)
    assert np.bincount(bunch.target).tolist() == [n_rows - n_positive, n_positive]
    assert bunch.sensitive_features.value_counts().to_dict() == groups
    entries = bunch.data.data if sparse.issparse(bunch.data) else bunch.data
    assert np.isfinite(entries).all()
    assert DATASETS[name].target not in bunch.feature_names


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sensitive", "counts"),
    [
        ("adult", "race", {"White": 41_762}),
        ("a9a", "race", {"White": 41_762}),
        ("bank", "marital", {"married": 24_928, "single": 11_568, "divorced": 4_612}),
        ("compas", "race", {"African-American": 3_696, "Hispanic": 637, "Native American": 18}),
        ("compas", "sex", {"Male": 5_819, "Female": 1_395}),
        ("law_school", "male", {"male": 11_675, "female": 9_123}),
        ("acs_income_ok", "white", {"White": 13_350, "non-White": 4_567}),
        ("acs_income_ok", "SEX", {"male": 9_482, "female": 8_435}),
        ("heart", "Age", {"80+": 17_363}),
    ],
)
def test_other_sensitive_features_of_the_real_data(real, name, sensitive, counts):
    found = load_dataset(name, sensitive=sensitive, download_if_missing=False)
    found = found.sensitive_features.value_counts().to_dict()
    assert {group: found[group] for group in counts} == counts


@pytest.mark.data
@pytest.mark.parametrize("name", FACTS)
def test_checksums_of_the_real_files(real, name):
    for file in DATASETS[name].files:
        packed = (real / file.path).read_bytes()
        assert hashlib.sha256(packed).hexdigest() == file.sha256
        assert content_hash(gzip.decompress(packed).decode()) == file.content


@pytest.mark.data
def test_a9a_has_the_rows_and_groups_of_adult(real):
    adult, a9a = (load_dataset(name, download_if_missing=False) for name in ("adult", "a9a"))
    np.testing.assert_array_equal(a9a.target, adult.target)
    assert (a9a.frame["split"] == adult.frame["split"]).all()
    assert len(a9a.feature_names) == len(set(a9a.feature_names)) == 123
    for name in a9a.feature_names[66:73]:
        column, value = name.split("=")
        assert (a9a.frame[name] == (adult.frame[column] == value)).all(), name


@pytest.mark.data
def test_compas_features_are_known_at_the_screening(real):
    for name in ("compas", "compas_scores"):
        assert load_dataset(name, download_if_missing=False).feature_names == [
            *("sex", "age", "age_cat", "race", "juv_fel_count", "juv_misd_count"),
            *("juv_other_count", "priors_count", "c_charge_degree"),
        ]
    frame = load_dataset("compas", download_if_missing=False).frame
    assert (frame["priors_count"] == frame["priors_count.1"]).all()
