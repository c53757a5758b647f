"""Reports: recorded episodes, scores and learning curves as one HTML file."""
