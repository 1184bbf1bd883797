"""Prepare a page for the site.

A link to a file outside docs/ becomes the path of that file, because the site does not have it. The one script that the theme
fetches from another host becomes ``file_worker.js``.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>\.\./[^)#\s]+)(?:#[^)]*)?\)")
_FETCHED: Final = re.compile(r'src="https://[^"]*/iframe-worker/shim"')
_ROOT: Final = re.compile(r'src="(?P<root>[./]*)assets/javascripts/bundle')
_ELSEWHERE: Final = re.compile(r'src="https?://[^"]*"')


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


def on_post_page(output: str, **_: Any) -> str:
    """Return the page of a document with scripts of the site only. mkdocs calls it.

    Raises:
        ValueError: the page would fetch a script or an image from another host.
    """
    root = _ROOT.search(output)
    own = output if root is None else _FETCHED.sub(f'src="{root["root"]}file_worker.js"', output)
    if (other := _ELSEWHERE.search(own)) is not None:
        raise ValueError(f"the site would need the network: {other[0]}")
    return own


def on_post_template(output_content: str, **_: Any) -> str:
    """Return a page without a document, such as that of a missing page. mkdocs calls it."""
    return on_post_page(output_content)
