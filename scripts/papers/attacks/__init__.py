"""What the attacks reached: which there are, their CSVs, the tables of their page."""
