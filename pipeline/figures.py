"""Numbers as a person reads them, in tables and in sentences."""


def fixed(value: float | None, *, digits: int = 3) -> str:
    """Return a loss or another number of known size, with as many decimals as its neighbours.

    >>> fixed(2.0), fixed(None)
    ('2.000', '-')
    """
    return "-" if value is None else f"{value:.{digits}f}"


def percent(share: float | None, *, digits: int = 1) -> str:
    """Return a share in percent.

    >>> percent(0.1234), percent(0.1234, digits=2), percent(None)
    ('12.3%', '12.34%', '-')
    """
    return "-" if share is None else f"{share:.{digits}%}"


def count(number: int, noun: str) -> str:
    """Return how many there are of something.

    >>> count(1, "file"), count(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}" + "s" * (number != 1)
