"""Reports, plots, statistics and the leaderboard, made of results files."""
