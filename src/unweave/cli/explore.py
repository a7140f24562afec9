"""``unweave explore``."""

from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro

from unweave.cli.flags import flags_of
from unweave.errors import UnweaveError
from unweave.explore.config import ExploreConfig
from unweave.settings import with_settings


@dataclass(frozen=True, kw_only=True)
class _Settings:
    explore: ExploreConfig = field(default_factory=ExploreConfig)


Flags = flags_of(_Settings, default=_Settings())


def explore(
    index: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    /,
    *,
    run: Path | None = None,
    static: Path | None = None,
    flags: Annotated[Flags, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")],  # type: ignore[valid-type]
) -> None:
    """Look at an index in a browser: a map of each space, and search by any mix of them.

    Prints the address of the page. Only this machine can reach it unless --host says otherwise.

    Args:
        index: Folder of an index, as `unweave index` makes it.
        run: Folder of the run that the index was made with, if it was moved.
        static: Write the page of up to 5,000 images to this folder as plain files for any web server, without uploads.
        flags: Settings.
    """
    settings = with_settings(ExploreConfig(), asdict(flags)["explore"])
    from unweave.explore import make_maps
    from unweave.search import Index

    missing = [package for package in ("starlette", "uvicorn") if find_spec(package) is None]
    if missing and static is None:
        raise UnweaveError(f"the server needs {' and '.join(missing)}: install unweave[explore], or use `static`")
    opened = Index.open(index, run=run)
    # Maps may take minutes: what would be refused after them is refused before.
    if static is not None:
        from unweave.explore.static_page import require_static_page, write_static_page

        require_static_page(len(opened), settings.map_rows, static)
        write_static_page(opened, make_maps(opened, index, settings), static)
        print(static / "index.html")
    else:
        from unweave.explore.server import listen, serve

        with listen(settings) as listener:
            maps = make_maps(opened, index, settings)
            serve(opened, maps, settings, on_start=lambda address: print(address, flush=True), listener=listener)
