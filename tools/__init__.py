"""Programs for working on Penstock itself; none of them is part of the package."""
