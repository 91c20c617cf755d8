"""What mmhash costs, beside its peers and in the same run."""
