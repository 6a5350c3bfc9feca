# SPDX-License-Identifier: Apache-2.0
"""Folders of curves: of any size and length, with what is no curve beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.curves import read_curves
from tests.support.stands.warm_python import Ended, run_program


def folder(path: Path, **files: str | list[float]) -> Path:
    for name, content in files.items():
        text = content if isinstance(content, str) else "\n".join(map(str, content))
        (path / name).write_text(text)
    return path


def test_one_file_is_one_curve_also_in_subfolders(tmp_path: Path) -> None:
    (tmp_path / "day").mkdir()
    folder(tmp_path, one=[10, 20.5, 30])
    folder(tmp_path / "day", two="40\r\n50\r\n\r\n60\r\n")
    # In the order of their paths.
    assert read_curves(tmp_path).tolist() == [[40.0, 50.0, 60.0], [10.0, 20.5, 30.0]]


def test_what_is_no_curve_is_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(tmp_path, one=[10, 20], README="Days of 2011.\n10\n", empty="", short=[10])
    (tmp_path / "picture").write_bytes(b"\xff\xd8\xff\xe0")
    assert read_curves(tmp_path).shape == (1, 2)
    assert "README, empty, picture and 1 more" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["n/a", "-3", "nan", "inf", "12,5", "1294 20"])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    folder(tmp_path, a=[10, 20], b=f"10\n20\n{line}\n30")
    with pytest.raises(SystemExit, match=rf"/b:3: '{line}' is not a percentage"):
        read_curves(tmp_path)


def test_a_short_curve_does_not_cut_the_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder(tmp_path, a=[1.0] * 288, b=[2.0] * 300, c=[3.0] * 5)
    assert read_curves(tmp_path).shape == (2, 288)
    assert "curves of 5 to 300 points; the first 288 points of 2 curves" in capsys.readouterr().err


def test_a_folder_without_curves_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no file with one percentage a line"):
        read_curves(tmp_path)
    archive = folder(tmp_path, archive=[1, 2]) / "archive"
    with pytest.raises(SystemExit, match="not a folder; unpack an archive first"):
        read_curves(archive)


async def replay(*flags: object) -> Ended:
    return await run_program("bench.replay", *map(str, flags))


async def test_the_table_of_another_day(tmp_path: Path) -> None:
    """Seven steady machines for nine pods, in two hours and a bit."""
    for number in range(7):
        points = [10.0 * number + point % 3 for point in range(26)]
        folder(tmp_path, **{f"vm-{number}": points})
    size = ("--nodes", 3, "--per-node", 3, "--mean", 70)
    found = await replay(tmp_path, *size, "--choices", "last/last", "last/p95:30m")
    assert found.code == 0, found.err
    head, columns, *table = found.out.splitlines()
    assert "7 curves, 3 nodes, 9 pods, mean 70 %" in head
    assert columns.split()[:3] == ["ceilings", "/", "targets"]
    rows = {line[:22].strip(): [float(each) for each in line[22:].split()] for line in table}
    assert list(rows) == ["no moves", "last/last", "last/p95:30m"]
    assert rows["no moves"][0] > rows["last/last"][0]
    assert rows["no moves"][2] == 0.0 < rows["last/last"][2]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--choices", "max/last"), "max/last: load.aggregation.ceilings.type: Input should be"),
        (("--choices", "last/p95:2h"), "last/p95:2h: load.aggregation.targets.window"),
        (("--strategies", "Leveling"), "enabledStrategies.0: Input should be"),
        (("--hours", 0), "argument --hours: 0 is not above 0"),
        (("--nodes", 2), "every percentage is 0"),
    ],
)
async def test_what_cannot_be_replayed_is_refused_before_it_starts(
    tmp_path: Path, flags: tuple[object, ...], why: str
) -> None:
    found = await replay(folder(tmp_path, idle=[0, 0, 0]), *flags)
    assert found.code != 0
    assert why in found.err.splitlines()[-1]
