"""Every error a user can cause: one line that says what, the value, where, and what to do."""


class ClozemillError(Exception):
    """A fault the user can mend; the command line prints its text and exits with 2."""


class ConfigError(ClozemillError):
    """A setting that cannot be used."""


class InputError(ClozemillError):
    """An input file, record or byte sequence that cannot be read as asked."""


class TokenizerError(ClozemillError):
    """A tokenizer that cannot be loaded, trained or used for the task."""


class DatasetError(ClozemillError):
    """A dataset folder or shard that is absent, damaged or does not match its manifest."""


class ModelError(ClozemillError):
    """An encoder's configuration or weights that cannot be used."""


class RunError(ClozemillError):
    """A training run that cannot start, go on or be read."""


class QueryError(ClozemillError):
    """A query over a dataset that cannot be run."""
