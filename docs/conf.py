"""Sphinx settings of these pages: `make docs`."""

project = "KEPL"
author = "The KEPL authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "KEPL"
exclude_patterns = ["_build", "results/tables"]  # templates, which `make results` fills in
myst_heading_anchors = 3
highlight_language = "none"
