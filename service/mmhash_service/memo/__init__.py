"""The memo: remembers what decoded images and fetched URLs hashed to."""
