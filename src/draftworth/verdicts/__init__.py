"""Verdicts: the statistics of a comparison, its verdict, and the check of the variant's output.

Nothing is imported here: numpy and scipy load only when one of the modules that compute is asked for.
"""
