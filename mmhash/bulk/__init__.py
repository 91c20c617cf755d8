"""Keys of very many files or rows, computed by several processes; a killed run can be resumed."""
