"""The memo: a cache of the digests of decoded images and of fetched URLs."""
