"""What only the command line adds to training: text and settings in, a log, checks and samples out."""
