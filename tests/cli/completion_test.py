#!/usr/bin/python3
"""What bash, zsh and fish offer after `ropeway`: real shells on a terminal, their keys pressed, held against the command's own help.

Usage: completion_test.py BUILD_DIR | ropeway        ropeway: the installed one, with bash-completion, compinit and fish's folders as Debian sets them up
Exit status 77 where a shell is not installed.
"""
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

INSTALLED = sys.argv[1:] == ["ropeway"]
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
COMMAND = "ropeway" if INSTALLED else str(BUILD / "ropeway")
FILES = BUILD / "src/cli/completion"
LIMIT_S = 60
READY, SHOWN = "@ready@", "@shown@"


def help_of(path):
    return subprocess.run([COMMAND, *path.split()[1:], "--help"], capture_output=True, text=True, check=True).stdout


def options_of(path):
    return {f"--{name}" for name in re.findall(r"(?m)^  (?:-\w, |    )--([a-z-]+)", help_of(path))}


def commands_of(path):
    listed = re.search(r"(?ms)^Commands:\n(.*?)\n\n", help_of(path))
    return set(re.findall(r"(?m)^  ([a-z]+) ", listed[1] + "\n")) if listed else set()


def paths():
    found = ["ropeway"]
    for path in found:
        found += [f"{path} {name}" for name in sorted(commands_of(path))]
    return found


class Shell:
    """One shell on a terminal of its own. `all_key` puts every word that it offers into the line."""

    def __init__(self, words, setup, all_key, folder):
        env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
        pid, self.fd = pty.fork()
        if not pid:
            os.chdir(folder)
            os.execvpe(words[0], words, env)
        self.pid, self.all_key, self.seen = pid, all_key, ""
        self.type(setup + f"\nprintf '%s%s\\n' {READY[:3]} {READY[3:]}\n")
        self.until(READY)

    def type(self, text):
        os.write(self.fd, text.encode())

    def until(self, mark):
        """What came up to the mark."""
        end = time.monotonic() + LIMIT_S
        while mark not in self.seen:
            if time.monotonic() > end or not select.select([self.fd], [], [], 1)[0]:
                if time.monotonic() > end:
                    raise AssertionError(f"the shell never printed {mark}; it printed:\n{self.seen}")
                continue
            self.seen += os.read(self.fd, 65536).decode(errors="replace")
        before, self.seen = self.seen.split(mark, 1)
        return before

    def offers(self, line):
        """The words that may follow: they are put into the line, which printf then gets as arguments."""
        self.type(f"{line}{self.all_key}\x01printf '<%s>\\n' \x05 {SHOWN[:3]}''{SHOWN[3:]}\n")
        words = re.findall(r"<([^<>]*)>\r?\n", self.until(f"<{SHOWN}>"))
        self.until("\n")
        head = line.split()
        if not line.endswith(" "):
            head.pop()
        assert words[:len(head)] == head, (line, words)
        return {word.rstrip() for word in words[len(head):] if word}

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class Completion:
    """The same for each shell."""

    @classmethod
    def setUpClass(cls):
        if not shutil.which(cls.shell):
            raise unittest.SkipTest(f"{cls.shell} is not installed")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ropeway-completion-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for name in ("one.pcapng", "other.txt", "two.pcapng", "bin/ropeway-some-program", "folder/inside"):
            (cls.folder / name).parent.mkdir(exist_ok=True)
            (cls.folder / name).write_text("#!/bin/sh\n")
        (cls.folder / "bin/ropeway-some-program").chmod(0o755)
        if not INSTALLED:
            (cls.folder / "bin/ropeway").symlink_to(COMMAND)
        cls.on = cls.start()
        cls.addClassCleanup(cls.on.close)

    def test_each_command_and_every_option_that_help_names_is_offered(self):
        self.assertLess(9, len(paths()))
        for path in paths():
            if commands_of(path):
                self.assertEqual(self.on.offers(path + " "), commands_of(path), path)
            self.assertEqual({w.rstrip("=") for w in self.on.offers(path + " --")}, options_of(path), path)

    def test_a_word_that_has_begun_is_held_against_what_there_is(self):
        self.assertEqual(self.on.offers("ropeway de"), {"demo", "devices"})
        self.assertEqual({w.rstrip("=") for w in self.on.offers("ropeway run --stats --p")}, {"--pcap", "--print-library"})

    def test_values_of_a_choice_are_offered_behind_the_option_and_behind_an_equals_sign(self):
        for line in ("ropeway run --wire ", "ropeway run -w "):
            self.assertEqual(self.on.offers(line), {"auto", "udp", "copy", "fetch"}, line)
        self.assertEqual({w.removeprefix("--wire=") for w in self.on.offers("ropeway run --wire=")}, {"auto", "udp", "copy", "fetch"})
        self.assertEqual({w.removeprefix("--transport=") for w in self.on.offers("ropeway perf --transport=t")}, {"tcp"})

    def test_files_are_offered_where_a_file_is_expected(self):
        for line in ("ropeway run --pcap o", "ropeway run --fault o", "ropeway plugin check o"):
            self.assertEqual(self.on.offers(line), {"one.pcapng", "other.txt"}, line)
        self.assertIn("folder", {w.rstrip("/") for w in self.on.offers("ropeway recv fo")})

    def test_captures_are_offered_to_explain_and_other_files_where_there_is_none(self):
        for line in ("ropeway explain o", "ropeway explain --color never o"):
            self.assertEqual(self.on.offers(line), {"one.pcapng"}, line)
        self.assertEqual({w.rstrip("/") for w in self.on.offers("ropeway explain ")}, {"one.pcapng", "two.pcapng", "folder", "bin"})
        self.assertEqual(self.on.offers("ropeway explain ot"), {"other.txt"})

    def test_names_of_devices_are_offered(self):
        names = set(subprocess.run([COMMAND, "completion", "devices"], capture_output=True, text=True, check=True).stdout.split())
        self.assertIn("rpw_lo", names)
        self.assertEqual(self.on.offers("ropeway demo --device "), names)
        self.assertEqual(self.on.offers("ropeway run --devices "), names | {"all", "software", "first", "auto"})
        self.assertEqual(self.on.offers("ropeway run --devices software,rpw_l"), {"software,rpw_lo"})

    def test_names_of_faults_are_offered_and_files(self):
        faults = {"drop", "dup", "reorder", "corrupt", "delay", "seed"}
        self.assertLessEqual({f"{name}=" for name in faults} | {"one.pcapng"}, {w + "=" if w in faults else w for w in self.on.offers("ropeway run --fault ")})
        self.assertEqual({w.rstrip("=") for w in self.on.offers("ropeway run --fault drop=0.1,de")}, {"drop=0.1,delay"})
        self.assertEqual(self.on.offers("ropeway run --fault drop=0.1,delay=2 --stats ropeway-s"), {"ropeway-some-program"})

    def test_the_shells_are_offered(self):
        self.assertEqual(self.on.offers("ropeway completion "), {"bash", "zsh", "fish"})
        self.assertEqual(self.on.offers("ropeway run --like m"), {"mlx5"})

    def test_a_program_is_offered_to_run_and_then_what_that_takes(self):
        for line in ("ropeway run ropeway-s", "ropeway run --stats -- ropeway-s", "ropeway run --wire udp ropeway-s"):
            self.assertEqual(self.on.offers(line), {"ropeway-some-program"}, line)
        self.assertEqual(self.on.offers("ropeway run -- ropeway-some-program tw"), {"two.pcapng"})


class Bash(Completion, unittest.TestCase):
    shell = "bash"

    @classmethod
    def start(cls):
        load = ". /usr/share/bash-completion/bash_completion" if INSTALLED else f". {shlex.quote(str(FILES))}/ropeway"
        return Shell(["bash", "--noprofile", "--norc", "-i"], f"{load}\nPS1=\nbind 'set enable-bracketed-paste off'\nbind 'set bell-style none'", "\x1b*", cls.folder)


class Zsh(Completion, unittest.TestCase):
    shell = "zsh"

    @classmethod
    def start(cls):
        setup = ("" if INSTALLED else f"fpath=({shlex.quote(str(FILES))} $fpath)\n") + f"""PS1= PROMPT_SP= RPS1= ; unsetopt promptsp zle_bracketed_paste; unset zle_bracketed_paste
autoload -Uz compinit && compinit -u -d {cls.folder}/.dump
zle -C every complete-word _generic
zstyle ':completion:every:*' completer _all_matches _complete
zstyle ':completion:every:*' insert true
bindkey -e; bindkey '^Xa' every"""
        return Shell(["zsh", "-f", "-i"], setup, "\x18a", cls.folder)


class Fish(Completion, unittest.TestCase):
    """It can say what it would offer, by `complete -C`."""
    shell = "fish"

    @classmethod
    def start(cls):
        return cls

    @classmethod
    def close(cls):
        pass

    @classmethod
    def offers(cls, line):
        load = "" if INSTALLED else "source $argv[2]; "  # its path may have a space
        got = subprocess.run(["fish", "-c", f"{load}complete -C $argv[1]", "--", line, f"{FILES}/ropeway.fish"], cwd=cls.folder, capture_output=True, text=True, timeout=LIMIT_S, check=True,
                             env={"PATH": f"{cls.folder}/bin:{os.environ['PATH']}", "HOME": str(cls.folder), "LC_ALL": "C.UTF-8"})
        assert not got.stderr, got.stderr
        return {word.split("\t")[0] for word in got.stdout.splitlines()}


if __name__ == "__main__":
    if not INSTALLED and not (FILES / "ropeway").exists():
        sys.exit(f"{FILES}/ropeway is not there: run ninja first")
    missing = [shell for shell in ("bash", "zsh", "fish") if not shutil.which(shell)]
    for shell in missing:
        print(f"SKIPPED: {shell} is not installed")
    done = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result
    sys.exit(1 if not done.wasSuccessful() else 77 if missing else 0)
