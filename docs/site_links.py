"""Prepare a page for the site: a link to a file outside docs/ becomes the path of that file, because the site does not have it."""

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#\s]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page without links that leave the site. mkdocs calls it."""
    docs = Path(config["docs_dir"]).resolve()
    folder = (docs / page.file.src_uri).parent

    def inside(link: re.Match[str]) -> str:
        target = (folder / link["target"]).resolve()
        if target.is_relative_to(docs):
            return link[0]
        path = PurePosixPath(target.relative_to(docs.parent))
        return f"{link['text']} (`{path}`)"

    return _LINK.sub(inside, markdown)
