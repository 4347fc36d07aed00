# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx's configuration of the site; script/site runs it over what stage.py has laid out."""
import re
from pathlib import Path

from sphinx.search.en import SearchEnglish

project = "ropeway"
author = "the ropeway authors"
copyright = author + ", BSD-3-Clause"
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 6  # as GitHub makes them: the documents link to these
myst_enable_extensions = ["attrs_block"]
suppress_warnings = ["myst.header"]  # README's headings begin where they like
exclude_patterns = ["site/static/**"]
c_id_attributes = ["RPW_API"]
highlight_language = "none"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
nitpicky = False

# A button copies commands and programs, without the prompts; outputs have none.
copybutton_selector = ", ".join(f"div.highlight-{language} pre" for language in ("sh", "console", "bash", "python", "c", "yaml", "dockerfile"))
copybutton_prompt_text = "$ "

html_theme = "furo"
html_title = "ropeway"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5cad", "color-brand-content": "#0b5cad", "color-brand-visited": "#6d3fa0"},
    "dark_css_variables": {"color-brand-primary": "#6cb2ff", "color-brand-content": "#6cb2ff", "color-brand-visited": "#c9a4ff"},
}


HAN = "\u4e00-\u9fff"


class SearchEnglishAndChinese(SearchEnglish):
    """Chinese has no spaces between words: a run of it is searched by its pairs of characters."""

    js_splitter_code = f"""
var splitQuery = (query) => query.split(/[^\\p{{Letter}}\\p{{Number}}_\\p{{Emoji_Presentation}}]+/gu)
  .flatMap((word) => word.split(/([{HAN}]+)/))
  .flatMap((run) => (/^[{HAN}]{{2,}}$/.test(run) ? Array.from(run).slice(1).map((_, i) => run.slice(i, i + 2)) : [run]))
  .filter((word) => word);
"""

    def split(self, text):
        runs = [run for word in super().split(text) for run in re.split(f"([{HAN}]+)", word) if run]
        return [part for run in runs for part in (map("".join, zip(run, run[1:])) if re.match(f"[{HAN}]{{2}}", run) else [run])]


def language_of_page(app, page, template, context, doctree):
    context["language"] = "zh-CN" if page.endswith(".zh") or page.endswith("/zh") else "en"


def reachable_by_keys(app, error):
    """What may have to be scrolled sideways takes the focus (WCAG 2.1.1), and has a name; headings have their level (1.3.1)."""
    if error:
        return
    for path in Path(app.outdir).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        new = text.replace('<div class="table-wrapper', '<div tabindex="0" role="region" aria-label="table" class="table-wrapper')
        new = new.replace('class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"')
        new = re.sub(r"<pre(?! tabindex)(?=[ >])", '<pre tabindex="0"', new)
        if new != text:
            path.write_text(new, encoding="utf-8")


def setup(app):
    app.add_search_language(SearchEnglishAndChinese)
    app.connect("html-page-context", language_of_page)
    app.connect("build-finished", reachable_by_keys)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
