"""This room answers the usual requests without the messages of the tables, and leaves all others to the handlers."""
