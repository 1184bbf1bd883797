"""A terminal that was typed at."""

import io


class Keyboard(io.StringIO):
    """Standard input on which this was typed."""

    def isatty(self) -> bool:
        return True
