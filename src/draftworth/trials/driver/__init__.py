"""Trials that run on the serving machine by themselves: started, followed, ended from anywhere."""
