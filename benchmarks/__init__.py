"""Measurements of sciad beside its peers, in one run on one machine: `python -m benchmarks --help`.

Reading order: a case (`lotka_volterra`, `lynx_hare`, `pinene`), then `_harness` (how it is timed, what is recorded),
then `_report` (the tables and figures of `docs/benchmarks.md`).
"""
