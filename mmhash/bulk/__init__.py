"""Keys of millions of files or rows, computed by several processes; a killed run can resume."""
