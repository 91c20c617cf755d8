"""Checks that a running engine names blocks as its recipe says."""

from mmhash.verify.run import Report, verify_engine

__all__ = ["Report", "verify_engine"]
