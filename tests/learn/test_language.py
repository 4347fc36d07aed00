#!/usr/bin/python3
"""The programs and their comments are English, whatever the locale is; the Chinese of each of their sentences is in the documents."""
import pathlib
import re
import unittest

from pair import CLIENT, Case, Program, free_port

TOP = pathlib.Path(__file__).resolve().parents[2]
CHAPTER = TOP / "docs/learn/09-source.zh.md"
LOCALES = (
    {"LC_ALL": "C", "LANGUAGE": ""},
    {"LC_ALL": "C.UTF-8", "LANGUAGE": "zh_CN"},
    {"LC_ALL": "", "LANG": "zh_CN.UTF-8", "LANGUAGE": "", "LC_MESSAGES": ""},
    {"LC_ALL": "", "LANG": "de_DE.UTF-8", "LANGUAGE": ""},
)
CHINESE = "[\u4e00-\u9fff]"
NOT_SENTENCES = ("<", "[", "Hello from ", "message from ", "greeting from ")  # arguments; and what a peer is sent: data


def sentences(source):
    """What a source prints: its strings of several words, line by line, without the number of a step."""
    text = re.sub(r"/\*.*?\*/", "", source.read_text(), flags=re.S)
    text = re.sub(r"(?m)^#.*$", "", text)
    text = re.sub(r'(0x|%016)?(%?)" PRI\w+ ?(?:"|(?=\)))', lambda m: "%s" + ("" if m[0].endswith('"') else '"'), text)
    for strings in re.findall(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+', text):
        whole = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', strings)).replace('\\"', '"')
        for line in whole.split("\\n"):
            line = re.sub(r"^Step \d+: ", "", line.strip())
            if re.search(r"[a-z]{2,}[^%]* [^%]*[a-z]{2}|[a-z]{3} %|%\S* [a-z]{3}", line) and not line.startswith(NOT_SENTENCES):
                yield line


def translations():
    """{sentence: its Chinese}"""
    part = CHAPTER.read_text().partition("\n## 程序输出的句子\n")[2]
    return {english.replace("\\|", "|"): chinese for english, chinese in re.findall(r"(?m)^\| (.*) \| (.*) \|$", part) if english != "输出"}


class Programs(Case):
    def test_english_in_every_locale(self):
        for env in LOCALES:
            with self.subTest(env=env), Program(CLIENT, "127.0.0.1", "nosuchdevice", free_port(), env=env) as p:
                self.client_fails(p.end(), 'there is no device "nosuchdevice"')


class Chapters(unittest.TestCase):
    maxDiff = None

    def test_every_sentence_has_its_chinese(self):
        told = translations()
        printed = {line for source in (TOP / "learn").glob("*.c") for line in sentences(source)}
        self.assertEqual(sorted(told), sorted(printed))
        for english, chinese in told.items():
            self.assertRegex(chinese, CHINESE, english)
            self.assertEqual(chinese.count("%"), english.count("%"), english)

    def test_both_languages_tell_of_every_source(self):
        """docs/learn/09-source.md leads through the files, and its Chinese twin has each of their lessons."""
        for name in ("09-source.md", "09-source.zh.md"):
            chapter = (TOP / "docs/learn" / name).read_text()
            for path in sorted((TOP / "learn").glob("*.[ch]")):
                about = re.search(rf"\[{re.escape(path.name)}\]\(../../learn/{re.escape(path.name)}\)(.*)", chapter)
                self.assertTrue(about, f"{name} says nothing of {path.name}")
                if name.endswith(".zh.md"):
                    self.assertRegex(about[1], CHINESE, f"{name} says nothing in Chinese of {path.name}")


if __name__ == "__main__":
    unittest.main()
