# SPDX-License-Identifier: BSD-3-Clause
"""The first page: index.md.in, and what it takes from elsewhere, so that nothing stands in two places.

A line of index.md.in in double braces is replaced:
  {{ block DOCUMENT FIRST }}  the fenced block of DOCUMENT that begins with the line FIRST. The page has no commands of its own: the test docs holds those of documents
  {{ plot DOCUMENT }}         a plot of the first table of DOCUMENT with a column Ratio
  {{ live }}                  the pages of LIVE; those that this build lacks are left out
"""
import html
import re

import plots

LIVE = [  # a page that this build made (*.html: it answers to clicks, and is shown in a frame), its title, what it is
    ("docs/learn/ladders/07-loss-nak-server.html", "Packets, some of them lost",
     "`ropeway explain` drew this page from a capture of chapter 7 of the tour. Select an arrow to see each field with its bytes, and why the packet was sent; **Next problem** goes to the next loss."),
    ("docs/check-gallery.md", "Broken programs, checked",
     "`ropeway run --check` ran ten small programs with a bug each while this site was made: [what it said, beside their sources](docs/check-gallery.md)."),
]


def blocks(text):
    """{first line: (language, text)} of the fenced blocks of a document."""
    found = {}
    for language, body in re.findall(r"(?ms)^```(\w*)[^\n]*\n(.*?)^```$", text):
        found.setdefault(next((line.strip() for line in body.splitlines() if line.strip()), ""), (language or "sh", body))
    return found


def takes(text):
    """(document, first line of its block) of each block that the page shows."""
    return re.findall(r"(?m)^\{\{ block (\S+) (.*) \}\}$", text)


def live(has_page):
    out = []
    for page, title, lead in LIVE:
        if not has_page(page):
            continue
        out += [f"### {title}", lead]
        if page.endswith(".html"):
            out += [f'<iframe class="live" src="{page}#lang=en" title="{html.escape(title)}" loading="lazy"></iframe>',
                    f'<p><a href="{page}">Open this page alone</a></p>']
    return "\n\n".join(out)


def expand(text, root, has_page):
    """The page. root: the folder of the documents; has_page: whether the site has a page."""
    def block(document, first):
        known = blocks((root / document).read_text(encoding="utf-8"))
        if first not in known:
            raise ValueError(f"docs/site/index.md.in: {document} has no block that begins with '{first}'")
        return "```{}\n{}```".format(*known[first])

    text = re.sub(r"(?m)^\{\{ block (\S+) (.*) \}\}$", lambda m: block(m[1], m[2]), text)
    text = re.sub(r"(?m)^\{\{ plot (\S+) \}\}$", lambda m: plots.first_plot((root / m[1]).read_text(encoding="utf-8")), text)
    return re.sub(r"(?m)^\{\{ live \}\}$", lambda m: live(has_page), text)
