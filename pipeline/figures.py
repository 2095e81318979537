"""Numbers as a person reads them, in tables and in sentences."""

import math


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


def megabytes(num_bytes: float) -> str:
    """Return a size.

    >>> megabytes(1_234_500_000), megabytes(79_786_400_000)
    ('1,234.5 MB', '79.8 GB')
    """
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes < 1e10 else f"{num_bytes / 1e9:,.1f} GB"


def figure(number: float) -> str:
    """Return a count or a rate with the digits that tell it from its neighbours.

    >>> figure(30053), figure(563.118), figure(0.163612), figure(5.1e-06)
    ('30,053', '563.12', '0.1636', '5e-06')
    """
    if number == math.floor(number) or abs(number) >= 1_000:
        return f"{number:,.0f}"
    if abs(number) >= 1:
        return f"{number:,.2f}"
    return f"{number:.4g}" if abs(number) >= 1e-3 else f"{number:.0e}"


def p_value_text(p_value: float) -> str:
    """Return a p-value; the smallest floats are 0, which no p-value is.

    >>> p_value_text(0.0412), p_value_text(6.04e-48), p_value_text(0.0)
    ('0.041', '6.0e-48', '< 1e-300')
    """
    if p_value < 1e-300:
        return "< 1e-300"
    return f"{p_value:.3f}" if p_value >= 1e-3 else f"{p_value:.1e}"


def frequency(rate: float) -> str:
    """Return how often something happens.

    >>> frequency(0.05), frequency(1e-6)
    ('5 % of the time', '1 time in 1,000,000')
    """
    if rate >= 0.01:
        return f"{100 * rate:.3g} % of the time"
    return f"1 time in {round(1 / rate):,}"
