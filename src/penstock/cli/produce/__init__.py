"""`penstock produce` sends lines as messages."""
