"""Imported by the server that workers are forked from: what they need, and no pandas."""

import importlib

from clozemill.pipeline.arrow_alone import keep_pandas_out

keep_pandas_out()
importlib.import_module("clozemill.pipeline.preload")
