"""GradcheckError, which gradcheck's checks raise."""


class GradcheckError(RuntimeError):
    """A derivative is wrong, or a backward does not behave as one."""
