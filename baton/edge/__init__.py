"""Where Baton touches disks, sockets and clocks; never imported by workflow code."""
