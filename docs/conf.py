"""Sphinx: the pages are Markdown (MyST), the theme is furo. Nothing is fetched when they are built or read."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]

from legroom import __version__  # noqa: E402

project = "legroom"
author = "the authors of legroom"
project_copyright = author
release = version = __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
highlight_language = "text"
exclude_patterns = ["generated/commands.md", "generated/figures.md", "generated/runs.md", "files", "__pycache__"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
html_theme = "furo"
html_title = f"legroom {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
smartquotes = False  # --out is an option
pygments_style = "default"
