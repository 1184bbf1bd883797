"""Lanes: opening, batch transactions, failures and state folder."""
