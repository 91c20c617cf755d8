"""What a URL points to: whether it may be asked, where it really leads, and what comes."""
