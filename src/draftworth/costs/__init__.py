"""What one decode step of n tokens costs: probed on the live baseline, fitted, or on paper."""
