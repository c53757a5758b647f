"""Programs that ours are compared with: plain scikit-learn."""
