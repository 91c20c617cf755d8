"""Compares policies on real engines behind `mmhash gateway`, by the engines' own figures."""
