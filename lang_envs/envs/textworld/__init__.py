"""Games of TextWorld, over the package `textworld`."""
