from pathlib import Path

from tests.prose import faults, sentences

PAGE = """# What a heading says is not judged

A [link](https://example.org/a-b) is
its text. The `name of code` counts as one word.

```
no sentence stands in a block of code
```
"""
CODE = '''"""Do what is asked for."""
text = """A text that nobody reads here."""
# A comment of two lines
# is one sentence.
log.warning("lane %s: a write was refused", lane)
print(f"{topic} has {count} partitions")
'''


def test_faults() -> None:
    for text in ("The lane closes, and its successor reads the changelog.", "Who holds this partition?"):
        assert faults.of_sentence(text) == []
    for text, found in (
        ("Of each address it keeps the newest record.", "opens with a relative"),
        ("It knows what it needs, which is little, where it is.", "3 relatives"),
        (" ".join(["word"] * 26), "26 words"),
    ):
        assert faults.of_sentence(text) == [found]
    for subject in ("Add a page", "Embed Kafka", "Process it", "Bring it back", "Add " + "x" * 68):
        assert faults.of_subject(subject) == []
    for subject in ("Added a page", "Adding it", "Adds it", "The page", "Add " + "x" * 69):
        assert len(faults.of_subject(subject)) == 1


def test_places(tmp_path: Path) -> None:
    """Headings, blocks of code and strings are left out; a link is its text, a name of code one word."""
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text(PAGE, "utf-8")
    module.write_text(CODE, "utf-8")
    found = (sentences.of_markdown(page), sentences.of_code(module), sentences.of_messages(module))

    assert [[item[1:] for item in items] for items in found] == [
        [(3, "A link is its text."), (3, "The X counts as one word.")],
        [(1, "Do what is asked for."), (3, "A comment of two lines is one sentence.")],
        [(5, "lane %s: a write was refused"), (6, "X has X partitions")],
    ]
