"""The pictures that one lesson alone draws: a module for each lesson."""
