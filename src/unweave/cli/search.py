"""``unweave index``, ``unweave search`` and ``unweave duplicates``."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from unweave.cli.flags import flags_of
from unweave.errors import UnweaveError
from unweave.search.config import BuildConfig
from unweave.settings import with_settings

if TYPE_CHECKING:
    from unweave.data.unreadable import UnreadableImages
    from unweave.search import Hit, Index

UNLIKE = -0.3
"""The weight of a space given with --unlike: its opposite is rarely wanted as much as the liked spaces."""
Flags = flags_of(BuildConfig, default=BuildConfig())
IndexPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")]


def index(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None,
    /,
    *,
    out: Path,
    add: bool = False,
    prune: bool = False,
    removed: tyro.conf.UseAppendAction[tuple[Path, ...]] = (),
    root: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    flags: Annotated[Flags, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name="")],  # type: ignore[valid-type]
) -> None:
    """Embed images in every space and keep them in a folder that `unweave search` searches.

    The same command resumes an index that was interrupted.

    Args:
        run: Folder of a run or of an export.
        data: Images, as for `unweave train`. Not needed to prune.
        out: Folder of the index.
        add: Add the images of DATA to those that the index holds.
        prune: Remove images whose files no longer exist.
        removed: With --prune, a folder of images that was removed for good; may be repeated. Another absent folder is
            an error, since its disk may not be mounted.
        root: Folder of a torchvision data set, if DATA is its name.
        image_column: Column of the images, if a table has several.
        label_column: Column of the labels.
        flags: Settings.
    """
    from unweave.data.sources import check_exists

    given = asdict(flags)
    config = with_settings(BuildConfig(), {**given["index"], **given["embedding"]})
    if data is None and (add or not prune):
        raise UnweaveError("DATA is missing: name the images to index")
    if removed and not prune:
        raise UnweaveError(f"`removed` {removed[0]} needs `prune`, which removes the images of that folder")
    if data is not None:
        check_exists(data, root)
    from unweave.data import open_source
    from unweave.inference import load
    from unweave.inference.embed import usable_device
    from unweave.search import Index
    from unweave.search.files import IndexFiles
    from unweave.search.writing import require_same_run

    usable_device(config.embedding.device)
    model = load(run)
    if add or prune:
        _refuse_fixed(given["index"])
        require_same_run(IndexFiles(out), IndexFiles(out).load(), model)
    if prune:
        _say(f"{_images(Index.open(out).prune(removed=removed))} removed from {out}")
    if data is None:
        return
    source = open_source(
        data, root=root, image_column=image_column, label_column=label_column, channels=model.input_shape[0]
    )
    if add:
        made = Index.open(out, run=model)
        number = made.add(source, config=config)
        _say(f"{_images(number)} added to {out}, which has {len(made):,}")
    else:
        made = Index.build(run, source, out, config=config)
        _say(f"{_images(len(made))} in {out}: {', '.join(made.spaces)}")
    if made.unreadable is not None:
        _list_unreadable(made.unreadable)


def _images(number: int) -> str:
    return f"{number:,} image{'s' * (number != 1)}"


def _refuse_fixed(given: dict[str, Any]) -> None:
    """An index keeps the store and the spaces that it was built with."""
    if "store_url" in given:
        raise UnweaveError("`store_url` is changed by the command that builds the index, without `add` and `prune`")
    for name in given:
        raise UnweaveError(f"`{name}` is fixed when an index is built: leave it out, or build another index")


def _list_unreadable(unreadable: "UnreadableImages") -> None:
    from unweave.errors import printable

    for name, reason in list(unreadable.found.values())[:10]:
        _say(f"not readable: {printable(name)}: {reason}")
    if len(unreadable) > 10:
        _say(f"and {len(unreadable) - 10} more")


def _say(line: str) -> None:
    from unweave.console import message_console

    message_console().print(line)


def search(
    index: IndexPath,
    queries: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="QUERY")],
    /,
    *,
    space: str | None = None,
    like: tuple[str, ...] = (),
    unlike: tuple[str, ...] = (),
    weights: str | None = None,
    min: str | None = None,
    where: str | None = None,
    k: Annotated[int, tyro.conf.arg(aliases=["-k"])] = 20,
    run: Path | None = None,
    json: bool = False,
    html: Path | None = None,
) -> None:
    """Find images by content, by style, or by a mix of them.

    The score is the sum of weight / spread × cosine over the spaces. A negative weight seeks the opposite in a space.

    Args:
        index: Folder of an index.
        queries: Image files, names of images of the index, or row numbers.
        space: Search in this space alone; the first space by default.
        like: Spaces in which images shall be alike, each with weight 1.
        unlike: Spaces in which they shall be opposite, each with weight -0.3; images must then be alike in the spaces
            of --like: more than 95 % of random pairs, or --min.
        weights: A weight for each space, such as content=1,appearance=-0.3.
        min: The smallest cosine in a space, such as content=0.8.
        where: Which images to search, such as "label = 'cat' and path like 'a/%'"; columns are path, label and
            class_name.
        k: How many images to show.
        run: Folder of the run, if it was moved since the index was made.
        json: Print JSON.
        html: Write a contact sheet to this file.
    """
    if not queries:
        _raise_no_query(like, unlike)
    if html is not None:
        _require_writable(html)
    from unweave.data.sources.base import escape_name
    from unweave.errors import printable
    from unweave.search import Index

    opened = Index.open(index, run=run)
    chosen, minimum = _mix(opened, space, like, unlike, weights, min)
    found = []
    for query in queries:
        word: str | int = int(query) if query.isdecimal() and not Path(query).is_file() else query
        hits = opened.search(word, weights=chosen, minimum=minimum, where=where, k=k)
        found.append((query, word, hits))
    if json:
        import json as library
        from dataclasses import asdict

        values = [{"query": escape_name(query), "hits": [asdict(hit) for hit in hits]} for query, _, hits in found]
        conditions = {"minimum": minimum, "where": None if where is None else escape_name(where)}
        about = {"index": escape_name(str(index)), "weights": chosen, **conditions}
        print(library.dumps({**about, "queries": values}, indent=1, ensure_ascii=False))
    else:
        for query, _, hits in found:
            _print_hits(query, hits)
    if html is not None:
        _write_hits(html, opened, found)
        if not json:
            print(printable(str(html)))
    opened.close()


def _raise_no_query(like: tuple[str, ...], unlike: tuple[str, ...]) -> None:
    """A flag with several values takes the words that follow it."""
    for flag, taken in (("`like`", like), ("`unlike`", unlike)):
        if len(taken) > 1:
            raise UnweaveError(
                f"QUERY is missing: {flag} takes all words that follow it as spaces, here {' '.join(taken)}; write the "
                f"queries before {flag}, or after --, as in {flag} {taken[0]} -- {' '.join(taken[1:])}"
            )
    raise UnweaveError("QUERY is missing: name image files, or rows of the index")


def _require_writable(html: Path) -> None:
    """Raises where a sheet cannot be written, before the work of making one."""
    folder = html.absolute().parent
    if not folder.is_dir():
        raise UnweaveError(f"`html` {html}: there is no folder {folder}; create it, or name a file elsewhere")
    if html.is_dir() or not os.access(folder, os.W_OK):
        problem = "it is a folder" if html.is_dir() else f"the folder {folder} cannot be written to"
        raise UnweaveError(f"`html` {html}: {problem}; name a file elsewhere")


def _mix(
    index: "Index",
    space: str | None,
    like: tuple[str, ...],
    unlike: tuple[str, ...],
    weights: str | None,
    minimum: str | None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Weights and minimum cosines from the flags."""
    floors = {} if minimum is None else _numbers("min", minimum)
    for name, floor in floors.items():
        if not abs(floor) <= 1:
            raise UnweaveError(f"`min` {minimum}: that of {name} must be a cosine between -1 and 1")
    if (space is not None) + bool(like or unlike) + (weights is not None) > 1:
        raise UnweaveError("give one of `space`, `like` with `unlike`, and `weights`")
    for flag, names in (
        ("space", [] if space is None else [space]),
        ("like", like),
        ("unlike", unlike),
        ("min", floors),
    ):
        if unknown := [name for name in names if name not in index.spaces]:
            raise UnweaveError(f"`{flag}`: the index has no space {unknown[0]!r}, it has {', '.join(index.spaces)}")
    if weights is not None:
        return _numbers("weights", weights), floors
    if unlike and not like:
        raise UnweaveError("`unlike` needs `like`: what is opposite in one space and alike in none can be anything")
    if both := set(like) & set(unlike):
        raise UnweaveError(f"{both.pop()} is in `like` and in `unlike`")
    if like:
        if unlike:
            floors = {**{name: index.alike[name] for name in like}, **floors}
        return {**dict.fromkeys(like, 1.0), **dict.fromkeys(unlike, UNLIKE)}, floors
    return {space or index.spaces[0]: 1.0}, floors


def _numbers(flag: str, text: str) -> dict[str, float]:
    """``content=1,appearance=-0.3`` as a dictionary."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, sign, value = part.rpartition("=")
        try:
            if not sign:
                raise ValueError
            number = float(value)
        except ValueError:
            raise UnweaveError(f"`{flag}` {text}: write space=number, as in content=1,appearance=-0.3") from None
        if name.strip() in found:
            raise UnweaveError(f"`{flag}` {text}: {name.strip()} is named twice; name each space once")
        found[name.strip()] = number
    return found


def _print_hits(query: str, hits: "list[Hit]") -> None:
    from unweave.errors import printable

    print(f"# {printable(query)}")
    if not hits:
        print("no image satisfies the conditions")
        return
    spaces = list(hits[0].scores)
    wide = max(10, *map(len, spaces)) + 2
    labels = [printable(hit.class_name or ("-" if hit.label is None else str(hit.label))) for hit in hits]
    width = min(24, max(5, *map(len, labels)))
    print(f"{'row':>8}{'score':>9}" + "".join(f"{name:>{wide}}" for name in spaces) + f"  {'class':{width}}  path")
    for hit, label in zip(hits, labels, strict=True):
        scores = "".join(f"{hit.scores[name]:>{wide}.3f}" for name in spaces)
        print(f"{hit.row:>8}{hit.score:>9.3f}{scores}  {label:{width}}  {printable(hit.path)}")


def _write_hits(out: Path, index: "Index", found: "list[tuple[str, str | int, list[Hit]]]") -> None:
    from unweave.search.sheet import Picture, query_picture, write_sheet

    sections = []
    for query, word, hits in found:
        pictures = [query_picture(index, word, query)]
        for hit in hits:
            lines = [f"score {hit.score:.2f}", *(f"{name} {value:.2f}" for name, value in hit.scores.items())]
            pictures.append(Picture(index.thumbnail(hit.row), hit.path, lines))
        sections.append((query, pictures))
    write_sheet(out, "unweave search", sections)


def duplicates(
    index: IndexPath,
    /,
    *,
    space: str | None = None,
    threshold: float = 0.98,
    outliers: int | None = None,
    device: str = "auto",
    json: bool = False,
    html: Path | None = None,
) -> None:
    """List near-duplicates in a space, or outliers.

    The 20 nearest neighbours of every image are computed once and kept in the index.

    Args:
        index: Folder of an index.
        space: The space; the first one by default.
        threshold: The smallest cosine of near-duplicates.
        outliers: List this many images that are least alike to their neighbours instead.
        device: Where the neighbours are computed; auto uses a GPU if there is one.
        json: Print JSON.
        html: Write a contact sheet to this file.
    """
    if outliers is not None and outliers < 1:
        raise UnweaveError(f"`outliers` must be at least 1, not {outliers}: it is the number of images to list")
    if html is not None:
        _require_writable(html)
    from unweave.errors import printable
    from unweave.search import Index
    from unweave.search.sheet import Picture, write_sheet

    opened = Index.open(index)
    space = space or opened.spaces[0]
    opened.neighbours(space, device=device, progress=True)
    groups: list[list[tuple[int, float | None]]]  # rows, and the mean cosines of outliers
    if outliers is None:
        groups = [[(row, None) for row in group] for group in opened.duplicates(space, threshold)]
        title = f"near-duplicates in {space} (cosine at least {threshold:g})"
        count = f"{len(groups):,} group{'s' * (len(groups) != 1)}, {_images(sum(map(len, groups)))}"
    else:
        groups = [list(opened.outliers(space, outliers))]
        title, count = f"outliers in {space}", _images(len(groups[0]))
    if json:
        import json as library

        values = [[_member(row, opened.path(row), mean) for row, mean in group] for group in groups]
        print(library.dumps({"space": space, "groups": values}, indent=1, ensure_ascii=False))
    else:
        print(f"{title}: {count}")
        for number, group in enumerate(groups):
            for row, mean in group:
                print(f"{number:>6}{row:>9}  {printable(opened.path(row))}  {_shown(mean)}".rstrip())
    if html is not None:
        shown = [
            (
                f"{number}",
                [Picture(opened.thumbnail(r), opened.path(r), [_shown(m)] if m is not None else []) for r, m in g],
            )
            for number, g in enumerate(groups)
        ]
        write_sheet(html, title, shown)


def _member(row: int, path: str, mean: float | None) -> dict[str, Any]:
    about = {} if mean is None else {"mean_cosine": mean}
    return {"row": row, "path": path, **about}


def _shown(mean: float | None) -> str:
    return "" if mean is None else f"mean cosine {mean:.3f}"
