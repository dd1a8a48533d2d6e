"""The site: pages in Markdown, tables of options from the configs, and an API reference from docstrings."""

import re
import shutil
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import gallery_pages  # noqa: E402 - found by the line above
from field_tables import with_tables  # noqa: E402
from options_table import tables  # noqa: E402

from experiments.reproduce.catalogue import ITEMS  # noqa: E402
from experiments.reproduce.results_page import FIGURES, draw_figures  # noqa: E402

EXPERIMENTS = HERE.parent / "experiments"
"""Where options are declared, in a module ``options`` of each room."""

project = "schedsearch"
extensions = [
    "myst_parser",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["api/*/modules.rst"]
default_role = "code"
suppress_warnings = ["ref.python"]  # a name that two modules have
html_theme = "furo"
html_title = "schedsearch"
html_show_copyright = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

apidoc_modules = [
    {
        "path": f"../{name}",
        "destination": f"api/{name}",
        "max_depth": 2,
        "module_first": True,
        "separate_modules": True,
        "automodule_options": {"members"},
    }
    for name in ("placements", "schedsearch", "runtime")
]
autodoc_default_options = {"ignore-module-all": True}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_ivar = True


class Options(SphinxDirective):
    """``{options} COMMAND [GROUP ...]``: tables of these options, or of all."""

    required_arguments = 1
    optional_arguments = 10

    def run(self) -> list[nodes.Node]:
        """Return the tables."""
        for path in EXPERIMENTS.glob("*/*options.py"):
            self.env.note_dependency(str(path))
        command, *groups = self.arguments
        found = self.parse_text_to_nodes("\n\n".join(tables(command, groups)))
        return [nodes.container("", *found, classes=["options"])]


class TableOf(SphinxDirective):
    """``{table-of} fields of RECORD`` or ``{table-of} gpus``: a table too long for the page itself."""

    required_arguments = 1
    optional_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        return self.parse_text_to_nodes(with_tables(f"<!-- {' '.join(self.arguments)} -->\n\n"))


class Gallery(SphinxDirective):
    """A card for each ``notebook: sentence``, and a list of their pages for the menu."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the cards."""
        entries = [line.split(": ", 1) for line in self.content if line]
        menu = "\n".join(["```{toctree}", ":hidden:", *(f"made/{name}" for name, _ in entries), "```"])
        cards = [self.parse_text_to_nodes(gallery_pages.card(*entry)) for entry in entries]
        boxes = [nodes.container("", *card, classes=["card"]) for card in cards]
        return [nodes.container("", *boxes, classes=["cards"]), *self.parse_text_to_nodes(menu)]


def setup(app: Sphinx) -> None:
    """Add the three directives, make the gallery, and change what Sphinx would show otherwise."""
    app.add_directive("options", Options)
    app.add_directive("table-of", TableOf)
    app.add_directive("gallery", Gallery)
    app.connect("builder-inited", lambda app: gallery_pages.make_pages())
    app.connect("builder-inited", lambda app: draw_figures(ITEMS.values(), HERE / FIGURES))
    app.connect("source-read", _as_site)
    app.connect("autodoc-process-docstring", _keep_lines)
    app.connect("autodoc-skip-member", _skip_added_member)
    app.connect("build-finished", _copy_live_pages)


def _as_site(app: Sphinx, name: str, source: list[str]) -> None:
    """Make links to measured figures downloads; drop the empty line with which a doctest ends."""
    place = r"\]\(((\.\./)+experiments/benchmarks/(?:measured|instances)/(?![^)]*\.(?:png|svg)\)))"
    text = re.sub(place, r"](path:\1", source[0])
    source[0] = re.sub(r"(?m)\n\n```$", "\n```", text)


def _keep_lines(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Make literal what is indented in the docstring of a module, such as the list of a package's files."""
    if what == "module":
        text = re.sub(r"(?m)^(\S.*[^:\n]:?)\n\n(?= {4}\S)", r"\1\n\n::\n\n", "\n".join(lines))
        lines[:] = text.split("\n")


def _skip_added_member(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool:
    """Leave out what matplotlib adds to each class of figures: its docstring is in another form."""
    return skip or str(getattr(obj, "__module__", "")).startswith("matplotlib")


def _copy_live_pages(app: Sphinx, error: Exception | None) -> None:
    """Copy the playground and the report, pages of their own, beside the site's pages on them."""
    if error is None and app.builder.format == "html":
        shutil.copytree(HERE / "playground", Path(app.outdir) / "playground", dirs_exist_ok=True)
        shutil.copy(gallery_pages.REPORT / "report.html", Path(app.outdir) / "gallery" / "report.html")
