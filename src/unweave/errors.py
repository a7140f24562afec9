"""What is raised when the user, not the library, is mistaken."""


class UnweaveError(ValueError):
    """A mistake the user can mend: one line that names the value given and the remedy."""
