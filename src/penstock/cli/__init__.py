"""The command line has a module or a folder for each noun. It uses the client, and storage to look into data
folders."""
