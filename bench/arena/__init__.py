"""Evenkeel and descheduler, one after the other, on the same real cluster."""
