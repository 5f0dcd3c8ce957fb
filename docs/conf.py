"""How the site is built: ``python -m sphinx -W --keep-going docs docs/_build/html``."""

import re
import sys
from pathlib import Path

import matplotlib

sys.path.insert(0, str(Path(__file__).parents[1]))  # the checkout that holds this file
sys.path.insert(0, str(Path(__file__).parent))  # mathml.py, measured.py, outputs.py

import fairconstrained

matplotlib.use("agg")

project = "fairconstrained"
copyright = "The fairconstrained developers, BSD-3-Clause"
version = release = fairconstrained.__version__

extensions = [
    "mathml",  # docs/mathml.py
    "measured",  # docs/measured.py
    "myst_parser",
    "numpydoc",
    "outputs",  # docs/outputs.py
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery"]
templates_path = ["_templates"]
html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"fairconstrained {release}"
html_favicon = "_static/logo-light.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["names.js"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {
        "text": "fairconstrained",
        "image_light": "_static/logo-light.svg",
        "image_dark": "_static/logo-dark.svg",
    },
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "collapse_navigation": True,
    "show_toc_level": 2,
    # Elsewhere code, signatures and tables need the room.
    "secondary_sidebar_items": {page: ["page-toc"] for page in ("*", "guide/*", "about/*")},
    "header_links_before_dropdown": 7,  # all of them: nothing hides under "More"
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
html_sidebars = {page: [] for page in ("index", "start", "start_*", "choose", "evidence/index")}

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# The first needs the extra "clients", and its sections run on their own (tests/clients).
outputs_exclude = ["guide/works_with", "guide/large_data"]

autosummary_generate = True
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the docstrings say it in words
numpydoc_show_class_members = False  # the templates list them
numpydoc_xref_param_type = False

# Internal links must lead somewhere; other projects are not looked up, since builds are offline.
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(?!fairconstrained).*")]

# ---------------------------------------------------------------------- gallery

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 5,
    "remove_config_comments": True,
    "backreferences_dir": "api/backreferences",
    "doc_module": ("fairconstrained",),
    "image_srcset": ["2x"],
    "reset_modules": ("matplotlib",),
    "capture_repr": (),
}


def _without_labels(app, what, name, obj, options, lines):
    """Inherited docstrings refer to labels in scikit-learn's own documentation."""
    if (getattr(obj, "__module__", None) or "").startswith("sklearn."):
        lines[:] = [re.sub(r":ref:`([^`<]*?)\s*<[^`>]*>`", r"\1", line) for line in lines]


def setup(app):
    """Change docstrings before numpydoc reads them."""
    app.connect("autodoc-process-docstring", _without_labels, priority=400)
