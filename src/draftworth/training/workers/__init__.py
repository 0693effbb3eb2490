"""What runs in the training environment, beside torch: started by `boot.py`, told by a file, answering in JSON."""
