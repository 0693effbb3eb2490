"""Before anything is touched: what is there, what it will tell, and what planned arms will meet."""
