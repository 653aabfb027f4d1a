"""MkDocs hook: generated pages join the site in memory, and hand-written ones get the output of their commands."""

from __future__ import annotations

import os
import sys
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SECTION = "How it works"
WRITTEN = {"accuracy.md": "Accuracy"}


def on_config(config: Any) -> Any:
    """Make this checkout importable (mkdocs restores the path after it has loaded a hook); pages that are written by the
    validation command join the navigation when they are there."""
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    for path, title in WRITTEN.items():
        if os.path.isfile(os.path.join(config.docs_dir, path)):
            next(entry for entry in config.nav if SECTION in entry)[SECTION].append({title: path})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    from tools import gen_docs

    for path, text in gen_docs.generated(frozenset(gen_docs.written())).items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Run the commands of a hand-written page."""
    from tools import gen_docs

    return markdown if page.file.generated_by else gen_docs.published(markdown)
