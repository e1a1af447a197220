"""The command line: one module for each noun, over the client, and over storage where a folder is looked at."""
