#!/usr/bin/python3
"""comments.py: sentences in comments have subjects. "What was posted goes" and "who polls in vain" are counted as script/measure does; more than MOST in 100,000 words are too many.

Prints the sentences when there are more. Exit status 1: there are.
"""
import pathlib
import runpy
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MOST = 30


def main():
    measure = runpy.run_path(str(ROOT / "script/measure"))
    if not (ROOT / ".git").exists():
        print("SKIPPED: no checkout, so nothing says which files are ours")
        return 77
    names = subprocess.run(["git", "ls-files", *(f"{folder}/*.[ch]" for folder in measure["FOLDERS"])], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words, found = 0, []
    for name in names:
        text = measure["comment_text"]((ROOT / name).read_text(errors="replace"))
        words += len(text.split())
        found += [f"{name}: ...{text[max(0, m.start() - 30):m.end() + 40]}..." for m in measure["FREE_RELATIVE"].finditer(text)]
    many = len(found) * 100000 > MOST * words
    if many or not words:
        print("\n".join(found))
    print(f"{len(found)} sentences without a subject in {words} words of comments; {MOST} in 100,000 are the most")
    return 1 if many or not words else 0


if __name__ == "__main__":
    sys.exit(main())
