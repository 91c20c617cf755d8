"""What the service remembers: decoded images, and what URLs gave."""
