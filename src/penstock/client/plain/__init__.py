"""This package has requests without state between them, for tools that need no consumer."""
