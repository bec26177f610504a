"""What the command line adds to training: text and settings in, a log, checks, samples out."""
