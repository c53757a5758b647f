"""Games of TextArena for one player, over the package `textarena`."""
