"""These machines decide about consumer groups: which members they have, which member reads what, and how far it is."""
