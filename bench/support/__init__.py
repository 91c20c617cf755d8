"""What benchmarks share: timing, result files, plots, servers, load, and code of peers."""
