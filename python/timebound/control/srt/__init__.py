"""The table of real-time requirements (SRT): its rows, and the stores that keep it."""
