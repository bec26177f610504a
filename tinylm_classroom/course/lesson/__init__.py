"""From a source to its two notebooks, one way: read, rules, transform, execute, cut, write."""
