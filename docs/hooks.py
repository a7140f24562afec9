"""Adds the explorer's page to the site, beside the data of the demo in ``explore-demo/data``."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PAGE = Path(__file__).parents[1] / "src" / "unweave" / "explore" / "page"


def on_files(files: Files, config: Any) -> Files:
    """The page as ``unweave explore --static`` writes it."""
    for path in sorted(PAGE.iterdir()):
        name = f"explore-demo/{path.name}"
        if path.name == "index.html":
            text = path.read_text(encoding="utf-8").replace('data-backend="server"', 'data-backend="static"')
            files.append(File.generated(config, name, content=text))
        else:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files
