"""Settings of the documentation site: ``python -m sphinx notebooks OUT``, offline, from the outputs that notebooks are committed with."""

import sys
from pathlib import Path

import jaxbandit

sys.path[:0] = map(str, Path(__file__).parents[:2])  # for the extensions beside this file, and the experiments

project = "jaxbandit"
author = "The jaxbandit developers"
version = release = jaxbandit.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "extension", "papers"]
exclude_patterns = [".ipynb_checkpoints", "__pycache__"]
nitpicky = True

nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "groupwise"
autodoc_class_signature = "mixed"
autodoc_inherit_docstrings = False  # a method that does what its base says is described there
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
viewcode_follow_imported_members = True

html_theme = "sphinx_book_theme"
html_title = "jaxbandit"
html_theme_options = {"show_toc_level": 2, "navbar_persistent": [], "use_download_button": False, "use_fullscreen_button": False}
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_math_renderer = "mathml"
