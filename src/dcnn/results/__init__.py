"""What a finished run is, and how runs are compared: for the terminal, the page and the tables alike."""
