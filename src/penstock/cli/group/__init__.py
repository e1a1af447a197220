"""`penstock group` shows, moves and deletes consumer groups; a module for each command with code of its own."""
