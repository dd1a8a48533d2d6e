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

from options_table import tables  # noqa: E402 - found by the line above

from experiments.config.option_list import CONFIG  # noqa: E402

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

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

apidoc_modules = [
    {
        "path": f"../{name}",
        "destination": f"api/{name}",
        "max_depth": 2,
        "module_first": True,
        "separate_modules": True,
        "exclude_patterns": ["../runtime/server/tables.py"],  # its docstrings are SQLAlchemy's
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
        for path in CONFIG.rglob("*.yaml"):
            self.env.note_dependency(str(path))
        command, *groups = self.arguments
        found = self.parse_text_to_nodes("\n\n".join(tables(command, groups)))
        return [nodes.container("", *found, classes=["options"])]


def setup(app: Sphinx) -> None:
    """Make tables of options, downloads of files beside the site, keep lines in docstrings, copy a page."""
    app.add_directive("options", Options)
    app.connect("source-read", _as_site)
    app.connect("autodoc-process-docstring", _keep_lines)
    app.connect("build-finished", _copy_playground)


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


def _copy_playground(app: Sphinx, error: Exception | None) -> None:
    """Copy the playground, a page of its own, beside the site's page on it."""
    if error is None and app.builder.format == "html":
        shutil.copytree(HERE / "playground", Path(app.outdir) / "playground", dirs_exist_ok=True)
