"""BabyAI in words, over the package `minigrid`."""
