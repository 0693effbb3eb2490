"""A service that systemd runs: read exactly, tried, and put back."""
