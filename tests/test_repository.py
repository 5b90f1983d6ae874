"""What a stranger meets first: links that lead somewhere, files that exist, versions that agree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = {
    ".git",
    ".venv",
    "runs",
    "build",
    "dist",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
}

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$", re.MULTILINE)
MENTION = re.compile(
    r"(?<![\w./*<-])(?:src|docs|tests|examples|benchmarks|requirements)/[\w./*<>-]*\w/?(?![\w*<>])"
)

# In pieces, so that this file does not contain what it looks for.
PERSONAL = re.compile(r"(?<![\w.~-])/(?:ho" + r"me|ro" + r"ot|wo" + r"rk|Us" + r"ers)/[A-Za-z0-9_.]")
HOSTS = re.compile(
    "|".join(
        re.escape(name + end)
        for name, end in [
            ("py" + "pi", ".org"),
            ("python" + "hosted", ".org"),
            ("npm" + "js", ".org"),
            ("npm" + "js", ".com"),
            ("deb" + ".debian", ".org"),
            ("download" + ".pytorch", ".org"),
            ("ana" + "conda", ".org"),
        ]
    )
)


def repository_files() -> list[Path]:
    """What git tracks or would track; without git, everything that is no build product."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
            "\0"
        )
        paths = [ROOT / name for name in names if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for path in ROOT.rglob("*") if not SKIPPED.intersection(path.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file())


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = repository_files()
PAGES = [path for path in FILES if path.suffix == ".md"]
GUIDES = [
    path for path in PAGES if path.parent == ROOT / "docs" or path.name in ("README.md", "CONTRIBUTING.md")
]


def anchors(page: Path) -> set[str]:
    """The fragments that a page's headings can be reached by."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    text = CODE.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    broken = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, fragment = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (fragment and path.suffix == ".md" and fragment not in anchors(path)):
            broken.append(link)
    return broken


def missing_paths(text: str) -> list[str]:
    """Paths from the repository's root that a text speaks of but that are not there; patterns are skipped."""
    mentioned = (match.group().rstrip(".") for match in MENTION.finditer(text))
    return sorted(
        {path for path in mentioned if not set("*<>").intersection(path) and not (ROOT / path).exists()}
    )


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken_links(page)


@pytest.mark.parametrize("page", GUIDES, ids=named)
def test_mentioned_paths_exist(page: Path) -> None:
    assert not missing_paths(page.read_text(encoding="utf-8"))


def test_no_file_names_a_personal_folder_or_a_package_host() -> None:
    found: list[str] = []
    for path in FILES:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{named(path)}: {match.group()}" for rule in (PERSONAL, HOSTS) for match in rule.finditer(text)
        ]
    assert not found


def test_versions_agree() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_lock_pins_every_package_without_build_labels() -> None:
    lines = (ROOT / "requirements" / "lock.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert not [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)]


def test_the_checks_catch(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](page.md#one-two) [b](#nowhere) [c](gone.md) `[d](e)` [f](https://x.y)\n")
    assert broken_links(page) == ["#nowhere", "gone.md"]
    assert missing_paths("see src/teb/gone.py, src/teb, docs/*.md and tests/<name>.py.") == [
        "src/teb/gone.py"
    ]
    assert PERSONAL.search("in /" + "home/me")
    assert not PERSONAL.search("net" + "work/home or ./" + "work/x")
    assert HOSTS.search("https://py" + "pi.org/simple")


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert len(names) == len(set(names)), "modules of one name hide each other"
