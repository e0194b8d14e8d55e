import json
import time

import pytest

from tff_hdp import reading
from tff_hdp.errors import ArgumentError, FileError
from tff_hdp.topology import load_zones


def test_csv_with_regions(tmp_path):
    path = tmp_path / "zones.csv"
    path.write_text(
        "client,zone,region\na,paris,europe\nb,lima,america\n\nc,rome,europe\n"
        "d,paris,europe\n"
    )
    zoning = load_zones(path)
    assert zoning.client_ids == ("a", "b", "c", "d")
    assert zoning.zone_names == ("paris", "lima", "rome")
    assert zoning.zone_of == (0, 1, 2, 0)
    assert zoning.parents == ((0, 1, 0),)


def test_json_and_csv_of_one_tree_agree(tmp_path):
    tree = {
        "west": {"europe": {"paris": ["a", "d"], "rome": ["c"]}},
        "east": {"asia": {"delhi": ["b"]}},
    }
    as_json, as_csv = tmp_path / "z.json", tmp_path / "z.csv"
    as_json.write_text(json.dumps(tree))
    as_csv.write_text(
        "client,zone,region,half\na,paris,europe,west\nc,rome,europe,west\n"
        "b,delhi,asia,east\nd,paris,europe,west\n"
    )
    ids = ("d", "c", "b", "a")
    first = load_zones(as_json, client_ids=ids)
    assert first == load_zones(as_csv, client_ids=ids)
    assert first.client_ids == ids
    assert first.level_sizes == (4, 3, 2, 2)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("z.csv", "client,zone\na,x\na,y\n", "'a' is in zone 'x' and again in zone"),
        ("z.csv", "client,zone\nb,x\n", "client 'a' is in no zone"),
        ("z.csv", "client,zone\na,x\nb,y\n", "'b' is mapped to a zone but is not"),
        ("z.csv", "client,zone\na\n", "line 2 is .* needs 2 non-empty cells"),
        ("z.csv", "client,zone\na, \n", "line 2 is"),
        ("z.csv", "id,zone\na,x\n", "must begin client,zone"),
        ("z.csv", "", "must begin client,zone"),
        ("z.csv", "client,zone\n", "no client is mapped"),
        (
            "z.csv",
            "client,zone,region\na,x,r\nb,x,q\n",
            "'x' lies in 'r' and again in 'q'",
        ),
        ("z.json", '{"x": ["a"], "y": ["a"]}', "'a' is in zone 'x' and again in"),
        ("z.json", '{"x": ["a"], "y": []}', "group 'y' is empty"),
        ("z.json", '{"x": ["a"], "x": ["b"]}', "group 'x' is given twice"),
        ("z.json", '{"x": ["a"], "r": {"y": ["b"]}}', "'b' lies 2 levels deep, 'a' 1"),
        ("z.json", '{"x": ["a", 3]}', "zone 'x' holds 3"),
        ("z.json", '{"x": ["a", ""]}', "zone 'x' holds a client whose id is empty"),
        ("z.json", '{"x": [" "]}', "zone 'x' holds a client whose id is empty"),
        ("z.json", '{"": ["a"]}', "a group's name is empty"),
        ("z.json", '{" ": {"x": ["a"]}}', "a group's name is empty"),
        ("z.json", '{"x": 3}', "group 'x' holds 3"),
        ("z.json", '["a"]', "outermost value must be a non-empty object"),
        ("z.json", "{", "not JSON"),
        ("z.json", "[" * 100_000, "nested so deep"),
        ("z.json", '{"x":' * 40 + '["a"]' + "}" * 40, "more than 32 levels"),
        (
            "z.csv",
            "client,zone" + ",level" * 32 + "\na" + ",x" * 33 + "\n",
            "33 levels; allowed are 32",
        ),
        ("z.json", '{"x": [NaN]}', "holds NaN"),
        ("z.json", '{"\\ud800x": ["a"]}', "half of a character"),
        ("z.json", '{"x": ["a\\uDC00"]}', "half of a character"),
        ("z.json", '{"x": [' + "9" * 5000 + "]}", "4300 digits"),
        ("z.json", "\udcff", "not UTF-8"),
        ("z.csv", "\udcff", "not UTF-8"),
        ("z.csv", "client,zone\na," + "x" * 140_000 + "\n", "line 2: field larger"),
        ("z.csv", "client,zone\na," + "x" * 100_000 + "\nb,", "line 3 is"),
        ("z.csv", 'client,zone\na,p\nb,"q\nc,r\n', "line 4: unexpected end of data"),
        ("z.csv", 'client,zone\na,"p\nb,"q\n', "line 3: ',' expected after"),
        ("z.csv", "x" * 100_000, "must begin|header"),
        ("z.txt", "", "allowed: a .csv or .json file"),
    ],
)
def test_bad_files_are_refused_naming_the_offender(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text, errors="surrogateescape")
    ids = ("a", "b") if "region" in text else ("a",)
    with pytest.raises((FileError, ArgumentError), match=message) as error:
        load_zones(path, client_ids=ids)
    assert name in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("ids", [None, ("a",), ("a", "b", "c")], ids=str)
def test_a_quote_that_is_not_closed_swallows_no_clients(tmp_path, ids):
    path = tmp_path / "z.csv"
    path.write_text('client,zone,region\na,p,"\nb,q,e\nc,r,w\n')
    with pytest.raises(FileError) as error:
        load_zones(path, client_ids=ids)
    assert str(error.value) == f"{path}: line 4: unexpected end of data"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_two_quotes_too_many_swallow_no_clients(tmp_path, end):
    path = tmp_path / "z.csv"
    lines = ["client,zone,region", 'a,p,"', "b,q,e", '",r', "c,r,w", ""]
    path.write_text(end.join(lines), newline="")
    with pytest.raises(FileError) as error:
        load_zones(path)
    assert str(error.value) == f"{path}: line 4: a cell in quotes has a line break"


@pytest.mark.parametrize(
    ("name", "text"),
    [("z.csv", "client,zone\r\na,p\r\n"), ("z.json", '{"p": ["a"]}')],
)
def test_the_mark_that_spreadsheets_write_first_is_no_text(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    zoning = load_zones(path)
    assert (zoning.client_ids, zoning.zone_names) == (("a",), ("p",))


def test_names_in_quotes(tmp_path):
    path = tmp_path / "z.csv"
    path.write_text('client,zone\n"a, the first", "say ""p"""\nb,q\n')
    zoning = load_zones(path)
    assert zoning.client_ids == ("a, the first", "b")
    assert zoning.zone_names == ('say "p"', "q")


def test_a_character_of_two_halves_is_one(tmp_path):
    (tmp_path / "z.json").write_text('{"\\ud83d\\ude00": ["a"]}')
    assert load_zones(tmp_path / "z.json").zone_names == ("\N{GRINNING FACE}",)


@pytest.mark.parametrize("name", ["z.json", "z.csv"])
def test_reading_takes_linear_time(tmp_path, name):
    """Quadratic, each would take minutes."""
    ids = [f"client {i}" for i in range(50_000)]
    path = tmp_path / name
    if name == "z.json":
        path.write_text(json.dumps({f"zone of {c}": [c] for c in ids}))
    else:
        path.write_text("client,zone\n" + "".join(f"{c},zone of {c}\n" for c in ids))
    began = time.process_time()
    assert load_zones(path, client_ids=ids).num_zones == len(ids)
    assert time.process_time() - began < 5.0


def test_a_file_without_end_is_refused():
    with pytest.raises(FileError, match="more than 256 MiB"):
        reading.read_text("/dev/zero")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_zones(tmp_path / "none.csv")


def test_arguments_of_other_kinds_are_refused_by_name(tmp_path):
    with pytest.raises(ArgumentError, match=r"^path is None; allowed: a .csv or"):
        load_zones(None)
    path = tmp_path / "z.csv"
    path.write_text("client,zone\na,x\n")
    with pytest.raises(ArgumentError, match=r"^client_ids is 1; allowed: a sequence"):
        load_zones(path, client_ids=1)
