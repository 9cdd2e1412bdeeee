"""Personal data, encrypted under a key for each person; destroying the key erases the data."""
