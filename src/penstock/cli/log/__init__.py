"""`penstock log` shows the files of a data folder."""
