"""Who is alive, who leads, what exists: the metadata log behind one interface, in a SQLite file or in memory."""
