"""The error raised for a user's mistake, the warning about a run that goes wrong, and names in messages."""


class UnweaveError(ValueError):
    """A mistake that the user can correct: one line with the value given, what is accepted and a remedy.

    Names of arguments are written in backticks. The command line prints them as flags: `max_bad` becomes ``--max-bad``.

    Examples:
        >>> import unweave as uw
        >>> try:
        ...     uw.SimCLR(temperature=0)
        ... except uw.UnweaveError as error:
        ...     print(error)
        SimCLR: `temperature` must be positive, not 0
    """


class UnweaveWarning(UserWarning):
    """Something that the user should know and that does not stop a run. The command line prints it as one line.

    Examples:
        >>> import warnings
        >>> warnings.simplefilter("error", UnweaveWarning)  # stop where there is one
        >>> warnings.simplefilter("default", UnweaveWarning)
    """


def printable(name: str) -> str:
    r"""A name on one line: control characters and undecodable bytes are escaped.

    Examples:
        >>> printable("a\tb.jpg")
        'a\\tb.jpg'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
