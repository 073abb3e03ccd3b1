"""The laboratory of proofs: its commands exist, and its page has its rows."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("proof", ROOT / "lab/proof.py")
proof = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(proof)


@pytest.mark.parametrize("row", proof.PROOFS, ids=lambda row: row.name)
@pytest.mark.parametrize("is_short", [True, False])
def test_the_files_of_a_command_are_there(row, is_short):
    words = row.command(is_short)
    paths = [word.partition("::")[0] for word in words if "/" in word]
    assert all((ROOT / path).exists() for path in paths)


def test_the_page_names_the_rows():
    text = proof.PAGE.read_text()
    table = text[text.index(proof.BEGIN) : text.index(proof.END)]
    rows = [line.split(" | ")[0].strip("| ") for line in table.splitlines()]
    assert [row for row in rows if row in {each.name for each in proof.PROOFS}] == [
        each.name for each in proof.PROOFS
    ]
    assert "**failed**" not in table


def test_a_row_keeps_its_figures_and_fails_with_its_command():
    command = ("sh", "-c", "echo 3 kills, 9 acknowledged; echo noise")
    row = proof.PROOFS[0]._replace(command=lambda _: command, rounds=(0, 0))
    outcome = proof.try_proof(row, is_short=True)
    assert outcome.is_good
    assert outcome.lines == ("3 kills, 9 acknowledged",)
    row = row._replace(command=lambda _: ("sh", "-c", "echo one is lost; exit 1"))
    outcome = proof.try_proof(row, is_short=True)
    assert not outcome.is_good
    assert "one is lost" in outcome.lines
    assert proof.result_text(outcome, is_short=True).startswith("**failed**")


def test_rows_that_are_not_tried_keep_their_last_run(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{proof.BEGIN}\n{proof.END}\nafter\n")
    monkeypatch.setattr(proof, "PAGE", page)
    outcomes = [proof.Outcome(True, 1.0, (f"{n} kills",)) for n in range(3)]
    proof.write_page({"kill": outcomes[0], "pop": outcomes[1]}, is_short=True)
    proof.write_page({"pop": outcomes[2]}, is_short=True)
    runs = proof.last_runs(page.read_text())
    assert runs["kill"].startswith("0 kills<br>short form, 1 s, commit ")
    assert runs["pop"].startswith("2 kills<br>")
    assert runs["power"] == "not tried"
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")
