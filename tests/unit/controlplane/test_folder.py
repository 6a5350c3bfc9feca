# SPDX-License-Identifier: Apache-2.0
"""The folder: never someone else's, never used twice at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.cluster import stop_command
from controlplane.errors import FolderError
from controlplane.folder import Folder, default_root
from controlplane.processes import Process
from controlplane.state import State, load, save


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(FolderError, match=r"holds other things \(thesis.tex\)"):
        Folder(tmp_path).refuse_strangers()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="is not a folder"):
        Folder(tmp_path / "file").refuse_strangers()


def test_a_folder_can_be_used_again_after_it_was_cleared(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "cp")
    with folder.locked():
        folder.prepare()
        save(State({"etcd": 1}), folder)
        folder.scheduler_config.touch()
        folder.log("etcd").write_text("a line")
        folder.refuse_strangers()
        folder.clear()
    folder.refuse_strangers()
    assert folder.log("etcd").read_text() == "a line"
    assert sorted(path.name for path in folder.root.iterdir()) == [".lock", "logs"]


def test_what_is_inside_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.prepare()
    for path in (folder.pki, folder.kubeconfigs, folder.etcd, folder.logs):
        assert path.stat().st_mode & 0o077 == 0


def test_two_cannot_work_in_one_folder_at_once(tmp_path: Path) -> None:
    with (
        Folder(tmp_path).locked(),
        pytest.raises(FolderError, match="another `up` or `down` is running"),
        Folder(tmp_path).locked(),
    ):
        pass


def test_the_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_root() == Path("/state/evenkeel/controlplane")


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    state = State({"etcd": 1}, {"etcd": ("/bin/etcd", "--x")}, {"etcd": Process(7, 8, "boot")})
    save(state, folder)
    assert load(folder) == state


def test_a_folder_without_a_state_holds_no_control_plane(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=f"no control plane in {tmp_path}$"):
        load(Folder(tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"ports": {}, "commands": []}'])
def test_a_damaged_state_is_named(tmp_path: Path, text: str) -> None:
    folder = Folder(tmp_path)
    folder.state.write_text(text)
    with pytest.raises(FolderError, match="is damaged"):
        load(folder)


def test_the_command_that_stops_it_works_where_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    monkeypatch.setattr("sys.executable", str(python))
    folder = Folder(tmp_path / "cp")
    monkeypatch.chdir(tmp_path)
    assert stop_command(folder) == f"`.venv/bin/python -m controlplane down --dir {folder.root}`"
    monkeypatch.chdir("/proc")
    assert stop_command(folder).startswith(f"`{python} -m ")
