#!/usr/bin/python3
"""The table of profiles in docs/like.md, made of src/like/profiles.

  page.py --check    is it what the profiles say?
  page.py --write    writes it
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, PROFILES = ROOT / "docs" / "like.md", ROOT / "src" / "like" / "profiles"
NAMES = ["rxe", "mlx5", "thunderbolt", "efa-limits"]
BEGIN, END = "<!-- profiles -->\n", "<!-- end of profiles -->\n"


def keys(name):
    pairs = (line.partition("#")[0].partition("=") for line in (PROFILES / f"{name}.profile").read_text(encoding="ascii").splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs if value}


def table():
    profiles = [keys(name) for name in NAMES]
    order = list(dict.fromkeys(key for profile in profiles for key in profile))
    rows = [f"| {' | '.join(['key', *(f'`{name}`' for name in NAMES)])} |", "|---" * (len(NAMES) + 1) + "|"]
    return "\n".join(rows + [f"| `{key}` | {' | '.join(profile.get(key, '') for profile in profiles)} |" for key in order]) + "\n"


def main():
    if sys.argv[1:] not in (["--check"], ["--write"]):
        sys.exit(__doc__)
    if {path.stem for path in PROFILES.glob("*.profile")} != set(NAMES):
        sys.exit(f"{PROFILES} has other profiles than {', '.join(NAMES)}")
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    found, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{PAGE}: no place for the table")
    if sys.argv[1] == "--write":
        PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")
    elif found != table():
        sys.exit(f"{PAGE}: the table is not what {PROFILES} says; run tests/like/page.py --write")


if __name__ == "__main__":
    main()
