"""Imported by the server that workers are forked from: what they need, and nothing else."""

import importlib

from clozemill.pipeline.unneeded import keep_unneeded_out, without_collecting

with without_collecting():
    keep_unneeded_out()
    importlib.import_module("clozemill.pipeline.preload")
