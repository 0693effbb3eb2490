"""Workload to requests to token-exact timings. Import the modules; this package itself imports nothing."""
