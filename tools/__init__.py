"""These programs serve the work on Penstock itself; none of them is part of the package."""
