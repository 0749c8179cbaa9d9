"""GradcheckError: the error that `gradcheck` and `gradgradcheck` raise for a wrong derivative."""


class GradcheckError(RuntimeError):
    """A derivative is wrong, or a backward does not behave as one."""
