"""What agents outside may do, by a client, and as tools."""
