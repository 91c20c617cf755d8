"""Claims: leases with fencing tokens, so that one replica computes a result and the others wait."""
